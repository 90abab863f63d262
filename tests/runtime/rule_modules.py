"""Small decoders, each of which needs one rule of the runtime to have the gradients of one process."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.runtime.loss_modules import CLASSES, SEQ, WIDTH, LossCase, random_tokens

HEADS = 2


class Decoder(nn.Module):
    """An embedding, two layers and a head."""

    def __init__(self, layer: type[nn.Module]) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(CLASSES, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.layers = nn.ModuleList(layer() for _ in range(2))

    def hidden(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return x  # type: ignore[no-any-return]

    def forward(self, tokens: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.head(self.hidden(tokens)).flatten(0, 1), y.flatten())


def as_complex(x: torch.Tensor) -> torch.Tensor:
    """Pairs of neighbours as complex numbers."""
    return torch.view_as_complex(x.unflatten(-1, (-1, 2)))


def as_real(z: torch.Tensor) -> torch.Tensor:
    """Complex numbers as pairs of neighbours."""
    return torch.view_as_real(z).flatten(-2)


class RotaryLayer(nn.Module):
    """Attention whose queries and keys are rotated as complex numbers, as Meta's Llama does it."""

    rotations: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.output = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        angles = torch.outer(torch.arange(SEQ), 0.1 ** torch.arange(WIDTH // HEADS // 2))
        self.register_buffer("rotations", torch.polar(torch.ones_like(angles), angles))

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k = (as_real(as_complex(self.heads(each(x))) * self.rotations) for each in (self.q, self.k))
        mixed = F.scaled_dot_product_attention(q, k, self.heads(self.v(x)), is_causal=True)
        return x + self.output(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class ComplexLayer(nn.Module):
    """A layer whose residual stream is complex."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return z + as_complex(self.linear(as_real(z)).tanh())


class ComplexStream(Decoder):
    """Complex values, with complex gradients, between layers."""

    def __init__(self) -> None:
        super().__init__(ComplexLayer)

    def hidden(self, tokens: torch.Tensor) -> torch.Tensor:
        z = as_complex(self.embedding(tokens))
        for layer in self.layers:
            z = layer(z)
        return as_real(z)


class DoubleLayer(nn.Module):
    """A layer that computes in single precision and adds in double."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.linear(x.float()).tanh().double()


class DoubleStream(Decoder):
    """Values in double precision between layers."""

    def __init__(self) -> None:
        super().__init__(DoubleLayer)

    def hidden(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens).double()
        for layer in self.layers:
            x = layer(x)
        return x.float()  # type: ignore[no-any-return]


class SignedLayer(nn.Module):
    """A layer that reads only the signs of a value, so that no gradient flows back into it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
        return x + self.linear(x).tanh() * (signs > 0).float()


class DoubleSigns(Decoder):
    """A value in double precision whose gradient is zero in the layers, and not before them."""

    def __init__(self) -> None:
        super().__init__(SignedLayer)
        self.first = nn.Linear(WIDTH, WIDTH)

    def hidden(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        signs = self.first(x).double()
        x = x + signs.float()
        for layer in self.layers:
            x = layer(x, signs)
        return x  # type: ignore[no-any-return]


class IndexedLayer(nn.Module):
    """A layer that reads whole numbers and a mask that were made before the first layer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.positions = nn.Linear(WIDTH, WIDTH), nn.Embedding(3 * SEQ + 1, WIDTH)

    def forward(self, x: torch.Tensor, places: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        return x + (self.linear(x).tanh() + self.positions(places)).masked_fill(hidden.unsqueeze(-1), 0.0)


class SharedIndices(Decoder):
    """Whole numbers and a mask for all layers, made from the tokens."""

    def __init__(self) -> None:
        super().__init__(IndexedLayer)

    def hidden(self, tokens: torch.Tensor) -> torch.Tensor:
        x, places, hidden = self.embedding(tokens), (tokens % 3 + 1).cumsum(1), tokens > CLASSES // 2
        for layer in self.layers:
            x = layer(x, places, hidden)
        return x  # type: ignore[no-any-return]


class PlainLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.linear(x).tanh()  # type: ignore[no-any-return]


class TransformedHead(Decoder):
    """A table that is also the head, after another product, as in BERT.

    What the head reads is not the residual stream, so the dims of the table have other names there.
    """

    def __init__(self) -> None:
        super().__init__(PlainLayer)
        self.transform, self.head.weight = nn.Linear(WIDTH, WIDTH), self.embedding.weight

    def hidden(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.transform(super().hidden(tokens)).tanh()  # type: ignore[no-any-return]


CASES: dict[str, LossCase] = {
    "complex_rotary": LossCase(build=lambda: Decoder(RotaryLayer), inputs=random_tokens),
    "complex_stream": LossCase(build=ComplexStream, inputs=random_tokens),
    "double_stream": LossCase(build=DoubleStream, inputs=random_tokens),
    "double_signs": LossCase(build=DoubleSigns, inputs=random_tokens),
    "shared_indices": LossCase(build=SharedIndices, inputs=random_tokens),
    "transformed_head": LossCase(build=TransformedHead, inputs=random_tokens),
}
