"""What operators keep for their backward beside the values that they read and write."""

from collections.abc import Iterator

from trainwright.cost.operators import attention_keys
from trainwright.model.graph import Op, Tensor, query_dim, query_groups
from trainwright.program.builder import Builder
from trainwright.program.tensors import local_sizes
from trainwright.program.values import held_bytes, shape_of


def side_bytes(builder: Builder, index: int) -> float:
    """Bytes that one part of an operator keeps on a device: statistics, masks, the matrix of scores.

    Softmax over a vocabulary is the stack's: Stack.logits_bytes.
    """
    instance, placed = builder.instances[index], builder.placed[index]
    total = 0.0
    for tensor in _side_tensors(instance.op):
        if "vocab" not in tensor.dims:
            shape = shape_of(tensor, builder.sizes(instance), builder.setting.machine.element_bytes)
            total += held_bytes(shape, builder.layout(index, tensor, "read")) / placed.serial[1]
    if instance.op.kind == "attention" and builder.setting.stack.attention == "unfused":
        total += _scores_bytes(builder, index)
    return total


def _side_tensors(op: Op) -> Iterator[Tensor]:
    named = {tensor.name for tensor in (*op.inputs, op.output, *op.extra_outputs)}
    return (tensor for tensor in op.saved if tensor.name not in named)


def _scores_bytes(builder: Builder, index: int) -> float:
    """Softmax result, dropout result and mask of unfused attention: 5 bytes per score at 16 bit."""
    op = builder.instances[index].op
    local = local_sizes(builder.placed[index], op, builder.sizes(builder.instances[index]))
    scores = local[query_dim(op)] * attention_keys(op, local)
    for dim in query_groups(op):
        scores = scores * local[dim]
    return float(scores[0]) * (2.0 * builder.setting.machine.element_bytes + 1.0)
