"""One transformer layer: attention and feed-forward around a residual stream."""

from collections.abc import Callable
from dataclasses import dataclass

from trainwright.model.architecture import Architecture
from trainwright.model.attention import attention_ops, cross_attention_ops
from trainwright.model.ffn import ffn_ops
from trainwright.model.graph import Block, Op, Tensor
from trainwright.model.moe import moe_ops
from trainwright.model.operators import hidden_state, norm, residual


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKind:
    """What tells the layers of one model apart."""

    name: str = "layer"
    experts: bool = False
    window: int | None = None
    causal: bool = True
    cross: bool = False


def layer_block(architecture: Architecture, kind: LayerKind) -> Block:
    """The block of one layer."""
    stream = hidden_state("stream")
    attention, cross, ffn = _branches(architecture, kind)
    if architecture.parallel_block:
        return Block(name=kind.name, ops=_parallel_ops(architecture, stream, attention, ffn))
    branches = [("1", "attention", attention)]
    if cross is not None:
        branches.append(("_cross", "cross", cross))
    branches.append(("2", "ffn", ffn))
    ops: list[Op] = []
    for suffix, name, branch in branches:
        ops += _branch_ops(architecture, stream, suffix, name, branch)
        stream = ops[-1].output
    return Block(name=kind.name, ops=tuple(ops))


_Branch = Callable[[Tensor], tuple[Op, ...]]


def _branches(arch: Architecture, kind: LayerKind) -> tuple[_Branch, _Branch | None, _Branch]:
    def attention(source: Tensor) -> tuple[Op, ...]:
        return attention_ops(arch, source, window=kind.window, causal=kind.causal)

    def cross(source: Tensor) -> tuple[Op, ...]:
        return cross_attention_ops(arch, source)

    def ffn(source: Tensor) -> tuple[Op, ...]:
        return moe_ops(arch, source) if kind.experts else ffn_ops(arch, source)

    return attention, cross if kind.cross else None, ffn


def _branch_ops(
    arch: Architecture, stream: Tensor, suffix: str, name: str, branch: _Branch
) -> tuple[Op, ...]:
    """One branch with its norm before it, after it, or after the sum, and the residual sum."""
    before = (norm(arch, f"norm{suffix}", stream),) if arch.norm_placement == "pre" else ()
    ops = branch(before[0].output if before else stream)
    if arch.post_norms or arch.norm_placement == "output":
        after = f"{name}.post_norm" if arch.post_norms else f"norm{suffix}"
        ops = (*ops, norm(arch, after, ops[-1].output))
    total = residual(arch, f"residual{suffix}", stream, ops[-1].output)
    last = (norm(arch, f"norm{suffix}", total.output),) if arch.norm_placement == "post" else ()
    return (*before, *ops, total, *last)


def _parallel_ops(arch: Architecture, stream: Tensor, attention: _Branch, ffn: _Branch) -> tuple[Op, ...]:
    """Both branches read the stream; one residual adds them (GPT-J, PaLM, Falcon)."""
    norm1 = norm(arch, "norm1", stream)
    left = attention(norm1.output)
    norm2 = () if arch.shared_norm else (norm(arch, "norm2", stream),)
    right = ffn(norm2[0].output if norm2 else norm1.output)
    return (
        norm1,
        *left,
        *norm2,
        *right,
        residual(arch, "residual1", stream, left[-1].output, right[-1].output),
    )
