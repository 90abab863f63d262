"""A model that learns from text: its graph, and how processes carry it out, fill it and store it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainwright.errors import BadInput
from trainwright.model.architecture import Architecture
from trainwright.model.build import build_graph
from trainwright.model.flow import wire
from trainwright.model.graph import Graph
from trainwright.runtime.state_file import State, load_state
from trainwright.runtime.whole import Initial, build_initial, build_kernels
from trainwright.runtime.work import Kernel
from trainwright.runtime.worker import Microbatch

GIVEN = "input/tokens"
DEFAULT_SEQ = 256  # tokens, where a model has room for as many


@dataclass(frozen=True, slots=True, kw_only=True)
class Learner:
    """A model for sequences of `seq` tokens, each one of `vocab`.

    `taken` is a microbatch of tokens and of those that follow them, as the model takes it. `initial` finds
    the first weights, and holds what it needs for that only as long as they are wanted. `stored` has weights
    under the names that files give them, from those under their keys.
    """

    graph: Graph
    kernels: Mapping[str, Kernel]
    seq: int
    vocab: int
    initial: Callable[[], Initial]
    taken: Callable[[Microbatch], Microbatch]
    stored: Callable[[State], State]

    @property
    def loss(self) -> str:
        """The place of the model's loss."""
        return next(each.name for each in wire(self.graph) if each.op.kind == "loss")


def build_decoder(architecture: Architecture, seq: int | None, seed: int, start: Path | None) -> Learner:
    """A model of the catalog's kinds, with random first weights or those of a file."""
    graph = build_graph(architecture)
    _check_kind(graph)
    return Learner(
        graph=graph, kernels=build_kernels(graph), seq=seq or min(architecture.max_seq, DEFAULT_SEQ),
        vocab=architecture.vocab,
        initial=lambda: load_state(start) if start else build_initial(graph, seed),
        taken=lambda microbatch: microbatch, stored=dict,
    )  # fmt: skip


def _check_kind(graph: Graph) -> None:
    """Raise for a model that cannot learn from text alone."""
    instances = wire(graph)
    given = {name for each in instances for name in each.inputs if name.startswith("input/")}
    losses = [each for each in instances if each.op.kind == "loss"]
    if given != {GIVEN} or len(losses) != 1 or losses[0].op.output.dims != ("batch", "seq"):
        rule = f"is given {', '.join(sorted(given))}, and a token file has next tokens only"
        raise BadInput("model", graph.name, rule, "use a decoder, or trainwright.runtime from Python")
    if any(each.op.kind == "attention" and not each.op.causal for each in instances):
        rule = "attends to the tokens that it is to foretell"
        raise BadInput("model", graph.name, rule, "use a decoder, or trainwright.runtime from Python")
