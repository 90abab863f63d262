"""The recomputations that a search considers where none is stated: by software and by model."""

from collections.abc import Iterator

from trainwright.cost.constants import Stack
from trainwright.model.graph import Graph, Op, is_layer
from trainwright.plan.recompute_modules import FULL, NONE, RECOMPUTES, SELECTIVE, SELECTIVE_UNFUSED

# Software that recomputes by Megatron-Core's module labels.
MEGATRON = ("megatron-core", "nemo")
_MINIMAL = "norm+rope+context+act+moe_act"  # MaxText's `minimal`: the result of attention is not kept


def recompute_choices(graph: Graph, stack: Stack | None = None) -> tuple[int, ...]:
    """The recomputations to consider, by number; without a stack, those of software that is not known."""
    names = _of_software(graph, stack)
    if stack is not None and "selective" not in stack.recomputes:
        names = (name for name in names if name in stack.recomputes)
    return tuple(sorted({RECOMPUTES.index(name) for name in names}))


def _of_software(graph: Graph, stack: Stack | None) -> Iterator[str]:
    yield from (NONE, FULL)
    ops = [op for segment in graph.segments if is_layer(segment.block) for op in segment.block.ops]
    if stack is not None and stack.attention == "unfused":
        yield SELECTIVE_UNFUSED
        return
    if stack is None or stack.name not in MEGATRON:
        yield SELECTIVE
    if stack is not None and stack.name == "torchtitan":
        return
    if stack is not None and stack.name == "maxtext":
        yield _MINIMAL
        return
    yield from _of_model(ops)


def _of_model(ops: list[Op]) -> Iterator[str]:
    """Whole parts of a layer, and what is cheap to repeat in layers with experts or latent attention."""
    latent = any(op.name == "attention.kv_up" for op in ops)
    experts = any(op.region == "experts" for op in ops)
    if any(op.region == "ffn" for op in ops):
        yield "mlp"
    if experts:
        yield from ("norm+moe_act", "moe")
    if latent:
        yield "mla_up_proj"
    if latent and experts:
        yield "norm+mla_up_proj+moe_act"
