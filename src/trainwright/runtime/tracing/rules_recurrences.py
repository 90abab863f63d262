"""How recurrences over tokens, each one operation, relate the axes of what they read and make."""

from torch.fx import Node

from trainwright.runtime.tracing.axes import Reading
from trainwright.runtime.tracing.factors import Axes, Conflict
from trainwright.runtime.tracing.nodes import arguments, shape

RECURRENCES = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def recurrent(reading: Reading, node: Node) -> tuple[Axes, ...]:
    """An LSTM, GRU or RNN: samples are independent, all else is mixed, its weights included."""
    given = arguments(node)
    if "batch_first" not in given or len(shape(given["input"])) != 3:
        raise Conflict("a recurrence over packed sequences, or over one sample")
    axes = reading.axes[given["input"]]
    samples, tokens = axes[:2] if given["batch_first"] else axes[1::-1]
    states = given["hx"] if isinstance(given["hx"], list | tuple) else [given["hx"]]
    for state in states:
        reading.fit(node, state, 1, samples)
    sizes = [tuple(each.shape) for each in node.meta["val"]]
    new = reading.new_pieces(node, [sizes[0][2], *(size for each in sizes[1:] for size in each[::2])])
    made = (samples, tokens, new[0]) if given["batch_first"] else (tokens, samples, new[0])
    last = tuple((new[1 + 2 * at], samples, new[2 + 2 * at]) for at in range(len(sizes) - 1))
    states = arguments(node)["hx"] if isinstance(given["hx"], list | tuple) else [arguments(node)["hx"]]
    inner = [axis for state in states for axis in reading.axes[state][::2]]
    weights = [axis for weight in given["params"] for axis in reading.axes[weight]]
    reading.freeze(node, [tokens, axes[2], *new, *inner, *weights])
    return (made, *last)
