"""A model that learns from text: its graph, and how processes carry it out, fill it and store it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainwright.errors import BadInput
from trainwright.model.architecture import Architecture
from trainwright.model.build import build_graph
from trainwright.model.flow import wire
from trainwright.model.graph import Graph
from trainwright.runtime.one_process import OneProcess
from trainwright.runtime.state_file import State, load_state
from trainwright.runtime.whole import Initial, build_initial, build_kernels
from trainwright.runtime.work import Kernel
from trainwright.runtime.worker import Microbatch

GIVEN = "input/tokens"
_ENCODED, _DECODED = "input/encoder.tokens", "input/decoder.tokens"
DEFAULT_SEQ = 256  # tokens, where a model has room for as many


@dataclass(frozen=True, slots=True, kw_only=True)
class Learner:
    """A model for sequences of `seq` tokens, each one of `vocab`; so many `sequences` in a row are a sample.

    `taken` is a microbatch of tokens and of those that follow them, as the model takes it. `initial` finds
    the first weights, and holds what it needs for that only as long as they are wanted. `stored` has weights
    under the names that files give them, from those under their keys. A module of the user's own is also
    there as it is, `alone` on one process, and with fewer layers: `shorter`. `for_batch` is the same model
    for microbatches of that many samples, where its operators hold for one number of them only.
    """

    graph: Graph
    kernels: Mapping[str, Kernel]
    seq: int
    vocab: int
    initial: Callable[[], Initial]
    taken: Callable[[Microbatch], Microbatch]
    stored: Callable[[State], State]
    sequences: int = 1
    decayed: frozenset[str] | None = None  # keys of weights that decay, where their dims do not say
    alone: OneProcess | None = None
    shorter: Callable[[int], "Learner"] | None = None
    for_batch: Callable[[int], "Learner"] | None = None

    @property
    def loss(self) -> str:
        """The place of the model's loss."""
        return next(each.name for each in wire(self.graph) if each.op.kind == "loss")


def build_learner(architecture: Architecture, seq: int | None, seed: int, start: Path | None) -> Learner:
    """A model of the catalog's kinds, with random first weights or those of a file.

    The encoder of an encoder-decoder reads one sequence, and its decoder foretells the one that follows
    (prefix language modelling: Raffel et al. 2020, section 3.3).
    """
    graph = build_graph(architecture)
    encodes = _given(graph) == {_ENCODED, _DECODED}
    _check_kind(graph, {_ENCODED, _DECODED} if encodes else {GIVEN})
    return Learner(
        graph=graph, kernels=build_kernels(graph), seq=seq or min(architecture.max_seq, DEFAULT_SEQ),
        vocab=architecture.vocab,
        initial=lambda: load_state(start) if start else build_initial(graph, seed),
        taken=_continuing if encodes else lambda microbatch: microbatch, stored=dict,
        sequences=2 if encodes else 1,
    )  # fmt: skip


def _given(graph: Graph) -> set[str]:
    return {name for each in wire(graph) for name in each.inputs if name.startswith("input/")}


def _continuing(microbatch: Microbatch) -> Microbatch:
    """Two sequences in a row: one to be read by an encoder, and one to be gone on with by a decoder."""
    first, second = microbatch.given[GIVEN].chunk(2, dim=1)
    return Microbatch(
        given={_ENCODED: first, _DECODED: second},
        targets={name: each.chunk(2, dim=1)[1] for name, each in microbatch.targets.items()},
    )


def _check_kind(graph: Graph, given: set[str]) -> None:
    """Raise for a model that cannot learn from text alone."""
    instances = wire(graph)
    losses = [each for each in instances if each.op.kind == "loss"]
    if _given(graph) != given or len(losses) != 1 or losses[0].op.output.dims != ("batch", "seq"):
        rule = f"is given {', '.join(sorted(_given(graph)))}, and a token file has next tokens only"
        remedy = "use a decoder or an encoder-decoder, or trainwright.runtime from Python"
        raise BadInput("model", graph.name, rule, remedy)
    seen = [each for each in instances if each.op.kind == "attention" and not each.op.causal]
    if any(not each.op.name.startswith("cross") and not each.block.startswith("encoder") for each in seen):
        rule = "attends to the tokens that it is to foretell"
        raise BadInput("model", graph.name, rule, "use a decoder, or trainwright.runtime from Python")
