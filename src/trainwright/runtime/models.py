"""Transformers of the catalog's kinds as plain PyTorch modules: what traces and plans are checked against."""

from collections.abc import Callable
from math import sqrt

import torch
import torch.nn.functional as F
from torch import nn

from trainwright.errors import BadInput
from trainwright.model.architecture import Architecture

_ROPE_BASE = 10000.0


class Transformer(nn.Module):
    """Embedding, layers and head; given targets, the mean of their losses (of those that are not -100)."""

    def __init__(self, arch: Architecture, seq: int) -> None:
        super().__init__()
        _check(arch)
        self.embedding = nn.Embedding(arch.vocab, arch.hidden)
        self.positions = nn.Embedding(arch.positions, arch.hidden) if arch.positions else None
        self.embedding_dropout = nn.Dropout(_rate(arch))
        self.layers = nn.ModuleList(Layer(arch) for _ in range(arch.layers))
        self.norm = _norm(arch)
        self.logits = nn.Linear(arch.hidden, arch.vocab, bias=arch.head_bias)
        if arch.tied:
            self.logits.weight = self.embedding.weight
        rates = _ROPE_BASE ** (-torch.arange(0, arch.head_dim, 2) / arch.head_dim)
        angles = torch.outer(torch.arange(seq), rates)
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor | None = None) -> torch.Tensor:
        x = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        x = self.embedding_dropout(x)
        for layer in self.layers:
            x = layer(x, self.cosine, self.sine)
        logits: torch.Tensor = self.logits(self.norm(x))
        return logits if targets is None else F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Layer(nn.Module):
    """Attention and feed-forward around a residual stream, norms first."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.norm1, self.norm2 = _norm(arch), _norm(arch)
        self.attention, self.ffn = Attention(arch), Experts(arch) if arch.experts else FeedForward(arch)
        self.dropout1, self.dropout2 = nn.Dropout(_rate(arch)), nn.Dropout(_rate(arch))

    def forward(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        x = x + self.dropout1(self.attention(self.norm1(x), cosine, sine))
        return x + self.dropout2(self.ffn(self.norm2(x)))  # type: ignore[no-any-return]


class Attention(nn.Module):
    """Causal attention; query heads may share keys and values."""

    def __init__(self, arch: Architecture, rotate: Callable[..., torch.Tensor] | None = None) -> None:
        super().__init__()
        self.head_dim, self.rotate = arch.head_dim, (rotate or rotated) if arch.rope else None
        self.q = nn.Linear(arch.hidden, arch.heads * arch.head_dim, bias=arch.qkv_bias)
        self.k = nn.Linear(arch.hidden, arch.kv_heads * arch.head_dim, bias=arch.qkv_bias)
        self.v = nn.Linear(arch.hidden, arch.kv_heads * arch.head_dim, bias=arch.qkv_bias)
        self.output = nn.Linear(arch.heads * arch.head_dim, arch.hidden, bias=arch.output_bias)

    def forward(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            each(x).unflatten(2, (-1, self.head_dim)).transpose(1, 2) for each in (self.q, self.k, self.v)
        )
        if self.rotate is not None:
            q, k = self.rotate(q, cosine, sine), self.rotate(k, cosine, sine)
        shared = q.shape[1] != k.shape[1]
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=shared)
        return self.output(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class FeedForward(nn.Module):
    """Up and down around a nonlinearity, with a gate or without."""

    def __init__(self, arch: Architecture, gating: Callable[..., torch.Tensor] | None = None) -> None:
        super().__init__()
        self.gating = gating or _gated
        self.gate = nn.Linear(arch.hidden, arch.ffn, bias=arch.mlp_bias) if arch.gated else None
        self.up = nn.Linear(arch.hidden, arch.ffn, bias=arch.mlp_bias)
        self.down = nn.Linear(arch.ffn, arch.hidden, bias=arch.mlp_bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = F.gelu(self.up(x)) if self.gate is None else self.gating(self.gate(x), self.up(x))
        return self.down(inner)  # type: ignore[no-any-return]


class Experts(nn.Module):
    """Each token through the experts that its router finds likeliest.

    All experts see all tokens, and what was not asked for counts nothing: slow, but plain.
    """

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.top_k = arch.top_k
        self.router = nn.Linear(arch.hidden, arch.experts, bias=False)
        self.gate = nn.Parameter(_random(arch.experts, arch.expert_ffn, arch.hidden))
        self.up = nn.Parameter(_random(arch.experts, arch.expert_ffn, arch.hidden))
        self.down = nn.Parameter(_random(arch.experts, arch.hidden, arch.expert_ffn))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits = self.router(x)
        best, chosen = logits.topk(self.top_k, dim=-1)
        shares = torch.zeros_like(logits).scatter(-1, chosen, best.softmax(-1))
        inner = F.silu(_of_experts(x, self.gate)) * _of_experts(x, self.up) * shares.unsqueeze(-1)
        return (inner.unsqueeze(-2) @ self.down.transpose(1, 2)).sum(2).squeeze(2)


def _of_experts(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Every token by the weight of every expert: batch, seq, experts, width."""
    return (x[:, :, None, None, :] @ weight.transpose(1, 2)).squeeze(3)


def _random(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes) / sqrt(sizes[-1])


def _gated(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """SwiGLU (Shazeer 2020)."""
    return F.silu(gate) * up


def rotated(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Rotary positions: the two halves of each head turn together (Su et al. 2021)."""
    left, right = x.chunk(2, dim=-1)
    return torch.cat((left * cosine - right * sine, right * cosine + left * sine), dim=-1)


def _rate(arch: Architecture) -> float:
    return 0.1 if arch.dropout else 0.0


def _norm(arch: Architecture) -> nn.Module:
    return nn.RMSNorm(arch.hidden, eps=1e-5) if arch.norm == "rms" else nn.LayerNorm(arch.hidden)


def _check(arch: Architecture) -> None:
    """Refuse what these modules do not have."""
    usual = arch.kind == "decoder" and arch.norm_placement == "pre" and arch.final_norm
    dense = arch.shared_ffn or arch.first_dense or arch.moe_every > 1 or not arch.gated
    odd = arch.qk_norm != "none" or arch.kv_lora_rank or arch.window or arch.parallel_block
    if not usual or odd or (arch.experts and dense):
        raise BadInput(
            "architecture",
            arch.name,
            "is not a plain decoder with norms first and equal layers",
            "trace a module of your own",
        )
