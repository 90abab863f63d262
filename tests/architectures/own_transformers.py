"""Transformers as users write them: each has something that breaks a rule made for the usual block."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from tests.architectures.subject import SEQ, VOCAB

HIDDEN, HEADS, LAYERS = 32, 4, 4
HEAD = HIDDEN // HEADS


class Decoder(nn.Module):
    """Embedding, layers, norm and logits around any layer."""

    def __init__(self, layer: Callable[[], nn.Module], *, tied: bool = False) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleList(layer() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, VOCAB, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def logits(self, input_ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(input_ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))  # type: ignore[no-any-return]

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.logits(input_ids).flatten(0, 1), labels.flatten())


def heads_of(x: torch.Tensor, count: int = HEADS) -> torch.Tensor:
    """Batch, heads, seq, width of a head."""
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def joined(x: torch.Tensor) -> torch.Tensor:
    """Heads next to each other again."""
    return x.transpose(1, 2).flatten(2)


def complex_rotations() -> torch.Tensor:
    """Positions as complex numbers of size one, as Meta's Llama and torchtitan have them."""
    rates = 10000.0 ** (-torch.arange(0, HEAD, 2) / HEAD)
    angles = torch.outer(torch.arange(SEQ), rates)
    return torch.polar(torch.ones_like(angles), angles)


class RmsNorm(nn.Module):
    """The norm as Meta writes it, with a product by a rsqrt."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x) * self.weight


class MetaLayer(nn.Module):
    """Llama as Meta writes it: complex rotary positions, keys repeated by expand, SwiGLU."""

    rotations: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.ffn_norm = RmsNorm(HIDDEN), RmsNorm(HIDDEN)
        self.wq, self.wo = nn.Linear(HIDDEN, HIDDEN, bias=False), nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.wk, self.wv = (nn.Linear(HIDDEN, HIDDEN // 2, bias=False) for _ in range(2))
        self.w1, self.w3 = (nn.Linear(HIDDEN, 48, bias=False) for _ in range(2))
        self.w2 = nn.Linear(48, HIDDEN, bias=False)
        self.register_buffer("rotations", complex_rotations(), persistent=False)

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * self.rotations[None, :, None]).flatten(3).type_as(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.attention_norm(x)
        q, k, v = (each(y).unflatten(-1, (-1, HEAD)) for each in (self.wq, self.wk, self.wv))
        q, k = self.turned(q), self.turned(k)
        k, v = (
            each[:, :, :, None].expand(-1, -1, -1, 2, -1).reshape(*each.shape[:2], HEADS, HEAD)
            for each in (k, v)
        )
        mixed = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
        )
        x = x + self.wo(joined(mixed))
        y = self.ffn_norm(x)
        return x + self.w2(F.silu(self.w1(y)) * self.w3(y))  # type: ignore[no-any-return]


class ParallelLayer(nn.Module):
    """Attention and feed-forward read one norm, as in GPT-J."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(HIDDEN)
        self.q, self.k, self.v, self.o = (nn.Linear(HIDDEN, HIDDEN) for _ in range(4))
        self.up, self.down = nn.Linear(HIDDEN, 64), nn.Linear(64, HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        q, k, v = heads_of(self.q(y)), heads_of(self.k(y)), heads_of(self.v(y))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.o(joined(mixed)) + self.down(F.gelu(self.up(y)))  # type: ignore[no-any-return]


class AlibiLayer(nn.Module):
    """Biases by distance, attention written out, a fused projection taken apart by chunk."""

    bias: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.qkv, self.o = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 64), nn.Linear(64, HIDDEN)
        places = torch.arange(SEQ)
        far = (places[None] - places[:, None]).float()
        slopes = 2.0 ** -torch.arange(1, HEADS + 1)
        self.register_buffer("bias", (far * slopes[:, None, None]).masked_fill(far > 0, float("-inf")))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (heads_of(each) for each in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        scores = q @ k.transpose(-1, -2) / HEAD**0.5 + self.bias
        x = x + self.o(joined(scores.softmax(-1) @ v))
        return x + self.down(F.relu(self.up(self.norm2(x))).square())  # type: ignore[no-any-return]


class WindowLayer(nn.Module):
    """Attention to the last six tokens, by a mask made in the forward; gate and up in one product."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)
        self.q, self.k, self.v, self.o = (nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(4))
        self.gate_up, self.down = nn.Linear(HIDDEN, 96, bias=False), nn.Linear(48, HIDDEN, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, places = self.norm1(x), torch.arange(x.shape[1])
        far = places[:, None] - places[None]
        q, k, v = heads_of(self.q(y)), heads_of(self.k(y)), heads_of(self.v(y))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=(far >= 0) & (far < 6))
        x = x + self.o(joined(mixed))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)  # type: ignore[no-any-return]


class NormedHeadsLayer(nn.Module):
    """A norm of queries and keys over all heads at once, as in OLMo 2; norms after the branches."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(4))
        self.q_norm, self.k_norm = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)
        self.after1, self.after2 = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 64, bias=False), nn.Linear(64, HIDDEN, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = heads_of(self.q_norm(self.q(x))), heads_of(self.k_norm(self.k(x))), heads_of(self.v(x))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.after1(self.o(joined(mixed)))
        return x + self.after2(self.down(F.gelu(self.up(x))))  # type: ignore[no-any-return]


class EinsumLayer(nn.Module):
    """All products by einsum on weights of three dims."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.wq, self.wk, self.wv = (nn.Parameter(torch.randn(HIDDEN, HEADS, HEAD) * 0.1) for _ in range(3))
        self.wo = nn.Parameter(torch.randn(HEADS, HEAD, HIDDEN) * 0.1)
        self.up = nn.Parameter(torch.randn(HIDDEN, 64) * 0.1)
        self.down = nn.Parameter(torch.randn(64, HIDDEN) * 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        q, k, v = (torch.einsum("bsd,dhe->bshe", y, each) for each in (self.wq, self.wk, self.wv))
        scores = torch.einsum("bqhe,bkhe->bhqk", q, k) / HEAD**0.5
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        shares = scores.masked_fill(hidden, -1e9).softmax(-1)
        x = x + torch.einsum("bhqk,bkhe,hed->bqd", shares, v, self.wo)
        return x + torch.einsum(
            "bsf,fd->bsd", F.gelu(torch.einsum("bsd,df->bsf", self.norm2(x), self.up)), self.down
        )


class TopKLayer(nn.Module):
    """A mixture of experts as users write it: a loop over experts, each with a mask of its tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.router = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, 4, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(HIDDEN, 24), nn.GELU(), nn.Linear(24, HIDDEN)) for _ in range(4)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        best, chosen = self.router(y).softmax(-1).topk(2, dim=-1)
        total = torch.zeros_like(y)
        for number, expert in enumerate(self.experts):
            share = (best * (chosen == number)).sum(-1, keepdim=True)
            total = total + share * expert(y)
        return x + total


class SoftMixtureLayer(nn.Module):
    """All experts for all tokens, weighed by a softmax; experts stacked in one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.router = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, 4)
        self.up = nn.Parameter(torch.randn(4, HIDDEN, 24) * 0.1)
        self.down = nn.Parameter(torch.randn(4, 24, HIDDEN) * 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        shares = self.router(y).softmax(-1)
        inner = F.gelu(torch.einsum("bsd,edf->besf", y, self.up))
        return x + torch.einsum("besf,efd,bse->bsd", inner, self.down, shares)


class SharedLayers(Decoder):
    """One layer used four times, as in ALBERT."""

    def __init__(self) -> None:
        super().__init__(ParallelLayer)
        self.layers = nn.ModuleList([ParallelLayer()])

    def logits(self, input_ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(input_ids)
        for _ in range(LAYERS):
            x = self.layers[0](x)
        return self.head(self.norm(x))  # type: ignore[no-any-return]


class LowRankLayer(ParallelLayer):
    """LoRA: the projections are frozen, two thin products beside each are trained."""

    def __init__(self) -> None:
        super().__init__()
        self.requires_grad_(False)
        self.a, self.b = nn.Linear(HIDDEN, 4, bias=False), nn.Linear(4, HIDDEN, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + self.b(self.a(x))  # type: ignore[no-any-return]


class Smoothed(Decoder):
    """Cross entropy with label smoothing."""

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.logits(input_ids).flatten(0, 1), labels.flatten(), label_smoothing=0.1)


class ZLoss(Decoder):
    """Cross entropy and a penalty on the size of the normalizer (PaLM's z-loss)."""

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = self.logits(input_ids)
        return (
            F.cross_entropy(logits.flatten(0, 1), labels.flatten())
            + 1e-2 * logits.logsumexp(-1).square().mean()
        )


class CrossAttention(nn.Module):
    """A decoder that attends to an encoder's result, both with PyTorch's own layers."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, HIDDEN)
        options = {
            "d_model": HIDDEN,
            "nhead": HEADS,
            "dim_feedforward": 64,
            "dropout": 0.0,
            "batch_first": True,
        }
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(**options), 2, enable_nested_tensor=False
        )
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**options), 2)
        self.head = nn.Linear(HIDDEN, VOCAB)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        source, target = input_ids[:, : SEQ // 2], input_ids[:, SEQ // 2 :]
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        read = self.encoder(self.tokens(source))
        x = self.decoder(self.tokens(target), read, tgt_mask=mask, tgt_is_causal=True)
        return F.cross_entropy(self.head(x).flatten(0, 1), labels[:, SEQ // 2 :].flatten())


class DroppedTied(Decoder):
    """Dropout of zero, a buffer that scales, learned positions, tied embeddings."""

    scale: torch.Tensor

    def __init__(self) -> None:
        super().__init__(ParallelLayer, tied=True)
        self.positions, self.dropout = nn.Parameter(torch.randn(1, 32, HIDDEN) * 0.1), nn.Dropout(0.0)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, HIDDEN))

    def logits(self, input_ids: torch.Tensor) -> torch.Tensor:
        x = self.dropout(self.tokens(input_ids) * self.scale + self.positions[:, : input_ids.shape[1]])
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))  # type: ignore[no-any-return]


class GatedScanLayer(nn.Module):
    """A linear recurrence by cumulative sums, gated: attention without attention."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(HIDDEN)
        self.value, self.gate, self.out = (nn.Linear(HIDDEN, HIDDEN) for _ in range(3))
        self.decay = nn.Parameter(torch.zeros(HIDDEN))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        weight = torch.exp(torch.sigmoid(self.decay) * torch.arange(x.shape[1])[:, None] / SEQ)
        mean = torch.cumsum(self.value(y) * weight, dim=1) / torch.cumsum(weight, dim=0)
        return x + self.out(mean * torch.sigmoid(self.gate(y)))  # type: ignore[no-any-return]


class FourierLayer(nn.Module):
    """Tokens mixed by a Fourier transform, as in FNet."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 64), nn.Linear(64, HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + torch.fft.fft(torch.fft.fft(self.norm(x), dim=-1), dim=1).real
        return x + self.down(F.gelu(self.up(x)))  # type: ignore[no-any-return]
