"""Small modules as users write them, each with inputs for any number of samples."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

Inputs = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A module and what makes its inputs."""

    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[int], Inputs]

    def __str__(self) -> str:
        return self.name


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 6))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.net(x), y)


class Residual(nn.Module):
    """Products from a width to the same width, so that one dim is met twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner, self.last = nn.Linear(10, 16), nn.Linear(16, 16), nn.Linear(16, 6)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        x = x + self.inner(x).tanh()
        return F.cross_entropy(self.last(x), y)


class Shared(nn.Module):
    """One linear layer twice, the second time on what it made."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.last(self.inner(self.inner(x).relu()).relu()), y)


class Towers(nn.Module):
    """Several inputs and outputs, and a buffer."""

    scale: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.last = nn.Linear(8, 12), nn.Linear(5, 12), nn.Linear(12, 4)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 12))

    def forward(self, x: torch.Tensor, z: torch.Tensor, y: torch.Tensor) -> dict[str, object]:
        one, other = self.one(x).relu(), self.other(z).sigmoid()
        logits = self.last(one * other * self.scale)
        return {"loss": F.cross_entropy(logits, y), "logits": logits, "towers": (one, other)}


class Plain(nn.Module):
    """No loss: the module returns what it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 12), nn.Linear(12, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.up(x).tanh())  # type: ignore[no-any-return]


class Unruly(nn.Module):
    """Operations that have no rule."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 12), nn.Linear(7, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.last(torch.fft.rfft(self.first(x)).real.abs()), y)


class Reshaped(nn.Module):
    """A view that cuts across axes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(10, 10), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        across = self.first(x).reshape(x.shape[0], 15, 4)
        return F.cross_entropy(self.last(across.relu()).mean(1), y)


class EagerLayer(nn.Module):
    """Attention written out, with a fused projection that is taken apart by an index."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.output = (
            nn.LayerNorm(width),
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, seq, width = x.shape
        fused = self.qkv(self.norm(x)).view(batch, seq, 3, self.heads, width // self.heads)
        q, k, v = fused.permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        late = torch.ones(seq, seq, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(late, float("-inf")).softmax(-1) @ v
        return x + self.output(mixed.transpose(1, 2).reshape(batch, seq, width))  # type: ignore[no-any-return]


class Eager(nn.Module):
    """A decoder whose positions are a parameter that is cut to the length of the tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(20, 16), nn.Parameter(torch.randn(1, 32, 16))
        self.layers = nn.ModuleList(EagerLayer() for _ in range(2))
        self.head = nn.Linear(16, 20)

    def forward(self, tokens: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions[:, : tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(x).transpose(1, 2), y)


class VisionLayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.ffn(self.norm2(x))  # type: ignore[no-any-return]


class Vision(nn.Module):
    """Patches by a convolution, a class token, learned positions."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.first = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, 17, width))
        self.layers = nn.ModuleList(VisionLayer(width) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, image: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.positions
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(self.norm(x)[:, 0]), y)


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.norm, self.head = nn.GroupNorm(2, 8), nn.Linear(8, 10)

    def forward(self, image: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.one(image)), 2)
        return F.cross_entropy(self.head(F.relu(self.norm(self.two(x))).mean((2, 3))), y)


class Segmentation(nn.Module):
    """A class for every place of an image, made by a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 5, 1)

    def forward(self, image: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        places = torch.stack([y, y + 1, y + 2, y], 1).unsqueeze(2).expand(-1, -1, 4)
        return F.cross_entropy(self.last(self.first(image).relu()), places)


class Translation(nn.Module):
    """An encoder and a decoder with attention between them, and tied embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(20, 16), nn.Linear(16, 20)
        options = {"d_model": 16, "nhead": 2, "dim_feedforward": 32, "dropout": 0.0, "batch_first": True}
        layer = nn.TransformerEncoderLayer(**options)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**options), 1)

    def forward(self, source: torch.Tensor, target: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        read = self.encoder(self.tokens(source))
        x = self.decoder(self.tokens(target), read, tgt_mask=mask, tgt_is_causal=True)
        return F.cross_entropy(self.head(x).flatten(0, 1), y.flatten())


class Mixer(nn.Module):
    """Products along tokens and along channels."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.tokens = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 6))
        self.channels = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = x + self.tokens(self.norm(x).transpose(1, 2)).transpose(1, 2)
        return F.cross_entropy(self.head((x + self.channels(x)).mean(1)), y)


class Dropped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.dropout = nn.Linear(8, 64), nn.Linear(64, 4), nn.Dropout(0.5)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.down(self.dropout(self.up(x).relu())), y)


def cases() -> Iterator[Case]:
    """All modules but those that draw random numbers."""
    yield Case(name="perceptron", build=Perceptron, inputs=_made({"x": (10,), "y": 6}))
    yield Case(name="residual", build=Residual, inputs=_made({"x": (10,), "y": 6}))
    yield Case(name="shared", build=Shared, inputs=_made({"x": (8,), "y": 4}))
    yield Case(name="towers", build=Towers, inputs=_made({"x": (8,), "z": (5,), "y": 4}))
    yield Case(name="plain", build=Plain, inputs=_made({"x": (8,)}))
    yield Case(name="unruly", build=Unruly, inputs=_made({"x": (8,), "y": 4}))
    yield Case(name="reshaped", build=Reshaped, inputs=_made({"x": (6, 10), "y": 3}))
    yield Case(name="eager", build=Eager, inputs=_tokens({"tokens": 8, "y": 8}))
    yield Case(name="vision", build=Vision, inputs=_made({"image": (3, 16, 16), "y": 10}))
    yield Case(name="convolutions", build=Convolutions, inputs=_made({"image": (3, 8, 8), "y": 10}))
    yield Case(name="segmentation", build=Segmentation, inputs=_made({"image": (3, 4, 4), "y": 3}))
    yield Case(name="translation", build=Translation, inputs=_tokens({"source": 5, "target": 8, "y": 8}))
    yield Case(name="mixer", build=Mixer, inputs=_made({"x": (6, 16), "y": 5}))


def _made(shapes: Mapping[str, tuple[int, ...] | int]) -> Callable[[int], Inputs]:
    """Random numbers of the given shapes, and classes below the given counts."""

    def inputs(samples: int) -> Inputs:
        random = torch.Generator().manual_seed(samples)
        return {
            name: torch.randint(shape, (samples,), generator=random)
            if isinstance(shape, int)
            else torch.randn(samples, *shape, generator=random, dtype=torch.float64)
            for name, shape in shapes.items()
        }

    return inputs


def _tokens(lengths: Mapping[str, int], vocab: int = 20) -> Callable[[int], Inputs]:
    def inputs(samples: int) -> Inputs:
        random = torch.Generator().manual_seed(samples)
        return {
            name: torch.randint(vocab, (samples, length), generator=random)
            for name, length in lengths.items()
        }

    return inputs
