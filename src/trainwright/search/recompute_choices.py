"""The recomputations that a search considers where none is stated: by software and by model."""

from collections.abc import Iterator

from trainwright.cost.constants import Stack
from trainwright.model.graph import Graph, Op, is_layer
from trainwright.plan.recompute_modules import FULL, NONE, RECOMPUTES, SELECTIVE, SELECTIVE_UNFUSED
from trainwright.plan.recompute_policies import megatron_norm
from trainwright.stack.capability import ANY, Capability


def recompute_choices(graph: Graph, stack: Stack | None = None) -> tuple[int, ...]:
    """The recomputations to consider, by number; without a stack, those of software that is not known.

    Sets that the stack names, and of modules that it combines freely those that suit the model.
    """
    unfused = stack is not None and stack.attention == "unfused"
    able = stack.capability if stack is not None else ANY
    return tuple(sorted({RECOMPUTES.index(name) for name in _names(graph, able, unfused=unfused)}))


def _names(graph: Graph, able: Capability, *, unfused: bool) -> Iterator[str]:
    if able.recomputes and not able.recompute_modules:
        yield from able.recomputes
        return
    yield from (NONE, FULL)
    if unfused:
        yield SELECTIVE_UNFUSED
        return
    if not able.recompute_modules:
        yield SELECTIVE
    ops = [op for segment in graph.segments if is_layer(segment.block) for op in segment.block.ops]
    yield from _of_model(ops, fused_norms=able.fused_norms)


def _of_model(ops: list[Op], *, fused_norms: bool) -> Iterator[str]:
    """Whole parts of a layer, and what is cheap to repeat in layers with experts or latent attention."""
    latent = any(op.name == "attention.kv_up" for op in ops)
    experts = any(op.region == "experts" for op in ops)
    if any(op.region == "ffn" for op in ops):
        yield "mlp"
    if experts:
        norm = megatron_norm(latent=latent, experts=True) if fused_norms else "norm"
        yield from (f"{norm}+moe_act", "moe")
    if latent:
        yield "mla_up_proj"
    if latent and experts:
        yield "norm+mla_up_proj+moe_act"
