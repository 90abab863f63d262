"""Transformers for the comparison with PyTorch, in the blocks that data parallelism gathers one by one.

What a backward keeps is measured, so what GPUs fuse is written out here; all else is the package's own.
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from trainwright.model.architecture import Architecture
from trainwright.runtime.models import Attention, FeedForward, rotated


class Rotate(torch.autograd.Function):
    """Rotary positions: the backward rotates back and keeps nothing but the angles."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        ctx.angles = cosine, sine
        return rotated(x, cosine, sine)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        cosine, sine = ctx.angles
        return rotated(gradient, cosine, -sine), None, None


class Gated(torch.autograd.Function):
    """SwiGLU as one kernel does it: its backward keeps gate and up, not what lies between."""

    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(gate, up)
        return functional.silu(gate) * up

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        gate, up = ctx.saved_tensors
        to_gate = torch.ops.aten.silu_backward(gradient * up, gate)
        return to_gate, functional.silu(gate).mul_(gradient)


class Scale(torch.autograd.Function):
    """An RMS norm as one kernel does it: its backward keeps the input and one number for each token."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        rate = x.square().mean(-1, keepdim=True).add_(1e-5).rsqrt_()
        ctx.save_for_backward(x, weight, rate)
        return x * rate * weight

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, weight, rate = ctx.saved_tensors
        to_weight = (gradient * x * rate).sum((0, 1))
        inner = gradient * weight
        along = (inner * x).mean(-1, keepdim=True) * rate.pow(3)
        return inner * rate - x * along, to_weight


class RmsNorm(nn.RMSNorm):
    """The norm of a GPU, whose kernel PyTorch does not have for a CPU."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Scale.apply(x, self.weight)  # type: ignore[no-any-return]


class Layer(nn.Module):
    """Attention and feed-forward around a residual stream, norms first."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.norm1, self.norm2 = _norm(arch), _norm(arch)
        self.attention, self.ffn = Attention(arch, Rotate.apply), FeedForward(arch, Gated.apply)

    def forward(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x), cosine, sine)
        return x + self.ffn(self.norm2(x))  # type: ignore[no-any-return]


def _norm(arch: Architecture) -> nn.Module:
    return RmsNorm(arch.hidden) if arch.norm == "rms" else nn.LayerNorm(arch.hidden)


class Embedding(nn.Module):
    """Tokens, and positions where they are learned."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.tokens = nn.Embedding(arch.vocab, arch.hidden)
        self.positions = nn.Embedding(arch.positions, arch.hidden) if arch.positions else None

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens)
        return x if self.positions is None else x + self.positions(positions)


class Head(nn.Module):
    """The last norm and the projection to the vocabulary."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.norm = _norm(arch)
        self.logits = nn.Linear(arch.hidden, arch.vocab, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.logits(self.norm(x))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """Embedding, layers, head: the blocks that data parallelism gathers one by one."""

    def __init__(self, arch: Architecture, seq: int) -> None:
        super().__init__()
        self.embedding, self.head = Embedding(arch), Head(arch)
        self.layers = nn.ModuleList(Layer(arch) for _ in range(arch.layers))
        if arch.tied:
            self.head.logits.weight = self.embedding.tokens.weight
        angles = torch.outer(torch.arange(float(seq)), 1e4 ** -torch.linspace(0, 1, arch.head_dim // 2))
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens, positions)
        for layer in self.layers:
            x = layer(x, self.cosine, self.sine)
        return self.head(x)  # type: ignore[no-any-return]
