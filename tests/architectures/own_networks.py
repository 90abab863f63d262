"""Modules that are not transformers: images, graphs, recurrences, regression."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from tests.architectures.subject import CLASSES, VOCAB

WIDTH = 16


class GroupedConvolutions(nn.Module):
    """A residual convolutional net with GroupNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, WIDTH, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.GroupNorm(4, WIDTH), nn.ReLU(), nn.Conv2d(WIDTH, WIDTH, 3, padding=1))
            for _ in range(4)
        )
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.first(pixel_values)
        for block in self.blocks:
            x = x + block(x)
        return F.cross_entropy(self.head(x.mean((2, 3))), labels)


class Unet(nn.Module):
    """Down and up again with a connection across, a class for every pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.middle, self.up = nn.Conv2d(16, 16, 3, padding=1), nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.norm, self.head = nn.GroupNorm(2, 16), nn.Conv2d(16, CLASSES, 1)

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        high = F.silu(self.down1(pixel_values))
        low = F.silu(self.norm(self.middle(F.silu(self.down2(high)))))
        logits = self.head(torch.cat([high, self.up(low)], 1))
        wanted = labels[:, None, None].expand(-1, *logits.shape[2:])
        return F.cross_entropy(logits, wanted)


class Denoiser(nn.Module):
    """A small diffusion model: the noise in an image is predicted, with a squared error."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, WIDTH, 3, padding=1), nn.Conv2d(WIDTH, 3, 3, padding=1)
        self.norm, self.time = nn.GroupNorm(4, WIDTH), nn.Linear(1, WIDTH)

    def forward(self, x: torch.Tensor, noise: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        share = torch.sigmoid(time)[:, :, None, None]
        y = self.norm(self.first(x * share + noise * (1 - share))) + self.time(time)[:, :, None, None]
        return F.mse_loss(self.last(F.silu(y)), noise)


class Regression(nn.Module):
    """A mean of squared errors."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2))

    def forward(self, x: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(self.net(x), wanted)


class SummedRegression(Regression):
    """A sum of squared errors: twice the samples give twice the loss."""

    def forward(self, x: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(self.net(x), wanted, reduction="sum")


class BatchNormed(nn.Module):
    """Statistics over all samples of a batch, which are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, WIDTH, 3, padding=1), nn.Linear(WIDTH, CLASSES)
        self.norm = nn.BatchNorm2d(WIDTH)

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.last(F.relu(self.norm(self.first(pixel_values))).mean((2, 3))), labels)


class Recurrent(nn.Module):
    """PyTorch's own recurrent layer."""

    def __init__(self, layer: type[nn.Module]) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, VOCAB)
        self.recurrence = layer(WIDTH, WIDTH, num_layers=2, batch_first=True)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        found, _ = self.recurrence(self.tokens(input_ids))
        return F.cross_entropy(self.head(found).flatten(0, 1), labels.flatten())


class WrittenRecurrence(nn.Module):
    """A gated recurrence written out, step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, VOCAB)
        self.enter, self.keep = nn.Linear(2 * WIDTH, WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.tokens(input_ids)
        state, found = torch.zeros_like(x[:, 0]), []
        for place in range(x.shape[1]):
            both = torch.cat([x[:, place], state], -1)
            gate = torch.sigmoid(self.keep(both))
            state = gate * state + (1 - gate) * torch.tanh(self.enter(both))
            found.append(state)
        return F.cross_entropy(self.head(torch.stack(found, 1)).flatten(0, 1), labels.flatten())


class MessagePassing(nn.Module):
    """A graph network on one graph for all samples: gather along edges, add up at nodes."""

    source: torch.Tensor
    target: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(3)
        self.register_buffer("source", torch.randint(6, (14,), generator=random))
        self.register_buffer("target", torch.randint(6, (14,), generator=random))
        self.enter, self.message = nn.Linear(5, WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.update, self.head = nn.Linear(2 * WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = self.enter(x)
        for _ in range(2):
            sent = F.relu(self.message(torch.cat([x[:, self.source], x[:, self.target]], -1)))
            came = torch.zeros_like(x).index_add(1, self.target, sent)
            x = F.relu(self.update(torch.cat([x, came], -1)))
        return F.cross_entropy(self.head(x.mean(1)), y)


class MlpMixer(nn.Module):
    """Products along tokens and along channels, by turns."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_MixerLayer() for _ in range(4))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(x.mean(1)), y)


class _MixerLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.tokens = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 6))
        self.channels = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))  # type: ignore[no-any-return]


class WeightNormed(nn.Module):
    """Weights that are made of a direction and a size."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = weight_norm(nn.Linear(10, 32)), weight_norm(nn.Linear(32, CLASSES))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.last(F.elu(self.first(x))), y)


class Towers(nn.Module):
    """Two inputs, and a weight that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(8, WIDTH), nn.Linear(5, WIDTH)
        self.inner, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        one, other = self.inner(self.one(x).relu()), self.inner(self.other(z).sigmoid())
        return F.cross_entropy(self.last(one * other), y)


class DepthwiseText(nn.Module):
    """Text by causal depthwise convolutions and gates."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, VOCAB)
        self.layers = nn.ModuleList(_DepthwiseLayer() for _ in range(4))

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.tokens(input_ids)
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())


class _DepthwiseLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        self.mix = nn.Conv1d(WIDTH, WIDTH, 4, groups=WIDTH, padding=3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value, gate = self.inner(self.norm(x)).chunk(2, dim=-1)
        mixed = self.mix(value.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2)
        return x + mixed * torch.sigmoid(gate)
