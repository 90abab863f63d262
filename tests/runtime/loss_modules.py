"""Small modules with losses, frozen weights and layers that users have beside plain cross entropy."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, CLASSES, SEQ = 16, 12, 8
Inputs = dict[str, torch.Tensor]
Loss = Callable[[torch.Tensor, Inputs], torch.Tensor]


class Layer(nn.Module):
    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, seq, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, seq, 3, 2, -1).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).reshape(batch, seq, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))  # type: ignore[no-any-return]


class Tokens(nn.Module):
    """A decoder whose results a loss is made of."""

    def __init__(self, loss: Loss | None = None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CLASSES, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)
        self.loss = loss

    def hidden(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)  # type: ignore[no-any-return]

    def forward(self, tokens: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        assert self.loss is not None
        return self.loss(self.head(self.hidden(tokens)), {"tokens": tokens, "y": y})


class Values(nn.Module):
    """The same layers on vectors, with vectors to be met."""

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.first = nn.Linear(6, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.head = nn.Linear(WIDTH, 5)
        self.loss = loss

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        return self.loss(self.head(x), {"y": y})


class Weighted(Tokens):
    """Classes that count differently, and answers that do not count."""

    weight: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.linspace(0.5, 2.0, CLASSES))

    def forward(self, tokens: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.hidden(tokens)).flatten(0, 1)
        return F.cross_entropy(
            logits, y.flatten(), self.weight, ignore_index=3, label_smoothing=0.1, reduction="mean"
        )


class Ahead(Tokens):
    """A second head for the token after the next one, as multi-token prediction has it."""

    def __init__(self) -> None:
        super().__init__()
        self.second = nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.hidden(tokens)
        first = F.cross_entropy(self.head(hidden).flatten(0, 1), y.flatten())
        logits = self.second(hidden)[:, :-1]
        second = F.cross_entropy(logits.flatten(0, 1), y[:, 1:].flatten())
        return {"loss": first + 0.3 * second, "first": first, "second": second}


class Balanced(nn.Module):
    """Experts chosen by a router, with a load-balancing loss of each layer (Fedus et al. 2022)."""

    def __init__(self, experts: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CLASSES, WIDTH)
        self.layers = nn.ModuleList(Experts(experts) for _ in range(2))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        x, total = self.embedding(tokens), torch.zeros(())
        for layer in self.layers:
            x, balance = layer(x)
            total = total + balance
        loss = F.cross_entropy(self.head(x).flatten(0, 1), y.flatten())
        return {"loss": loss + 0.5 * total, "balance": total}


class Experts(nn.Module):
    def __init__(self, experts: int) -> None:
        super().__init__()
        self.norm, self.router = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, experts)
        self.up = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(experts))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        normed = self.norm(x)
        shares = self.router(normed).softmax(-1)
        chosen = F.one_hot(shares.argmax(-1), shares.shape[-1]).to(shares.dtype)
        made = torch.stack([up(normed).tanh() for up in self.up], -2)
        x = x + (made * (shares * chosen).unsqueeze(-1)).sum(-2)
        balance = (chosen.mean((0, 1)) * shares.mean((0, 1))).sum() * shares.shape[-1]
        return x, balance


class Recurrent(nn.Module):
    """Two recurrences in one operation each, between linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(CLASSES, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.first = nn.LSTM(WIDTH, 12, num_layers=2, batch_first=True, bidirectional=True)
        self.second = nn.GRU(24, WIDTH, batch_first=True)

    def forward(self, tokens: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x, (last, _) = self.first(self.embedding(tokens))
        x, _ = self.second(x)
        x = x + last.mean((0, 2)).unsqueeze(-1).unsqueeze(-1)
        return F.cross_entropy(self.head(x).flatten(0, 1), y.flatten())


class Normalized(nn.Module):
    """Convolutions with norms over all samples of a microbatch, which keep no statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = (nn.Conv1d(each, WIDTH, 3, padding=1, bias=False) for each in (6, WIDTH))
        self.norm1, self.norm2 = (nn.BatchNorm1d(WIDTH, track_running_stats=False) for _ in range(2))
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = self.norm1(self.one(x.transpose(1, 2))).relu()
        x = self.norm2(self.two(x)).relu()
        return F.mse_loss(self.head(x.transpose(1, 2)), y)


class Adapted(nn.Module):
    """A frozen linear layer with a trained one of low rank beside it (Hu et al. 2021)."""

    def __init__(self, base: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + 0.5 * self.up(self.down(x))  # type: ignore[no-any-return]


def adapted() -> nn.Module:
    """A frozen decoder of which only adapters of products are trained."""
    module = Tokens(plain_entropy).requires_grad_(False)
    for layer in module.layers:
        layer.up, layer.down, layer.output = (Adapted(each) for each in (layer.up, layer.down, layer.output))
    return module


def frozen_embedding() -> nn.Module:
    """Trained layers on a frozen table, which is also the head."""
    module = Tokens(plain_entropy)
    module.head.weight = module.embedding.weight
    module.embedding.requires_grad_(False)
    return module


class Seeing(nn.Module):
    """A frozen tower whose results a trained one reads, and weights that no gradient reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = Values(lambda made, given: made).requires_grad_(False)
        self.bridge, self.unused = nn.Linear(5, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = self.bridge(self.tower(x, y))
        x = x + self.unused(x).detach()
        for layer in self.layers:
            x = layer(x)
        return F.mse_loss(self.head(x), y)


def biases_only() -> nn.Module:
    """A decoder of which only biases and norms are trained (Ben Zaken et al. 2021)."""
    module = Tokens(plain_entropy)
    for parameter in module.parameters():
        parameter.requires_grad_(parameter.dim() == 1)
    return module


def plain_entropy(logits: torch.Tensor, given: Inputs) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), given["y"].flatten())


def z_loss(logits: torch.Tensor, given: Inputs) -> torch.Tensor:
    """Cross entropy with a penalty on the logarithm of the partition function (Chowdhery et al. 2022)."""
    entropy = F.cross_entropy(logits.flatten(0, 1), given["y"].flatten())
    return entropy + 1e-2 * logits.logsumexp(-1).square().mean()


def hand_written(made: torch.Tensor, given: Inputs) -> torch.Tensor:
    return ((made - given["y"]) ** 2).mean(-1).mean()


def by_batch_size(made: torch.Tensor, given: Inputs) -> torch.Tensor:
    return ((made - given["y"]) ** 2).sum() / made.shape[0]


def distance(made: torch.Tensor, given: Inputs) -> torch.Tensor:
    return F.kl_div(made.log_softmax(-1), given["y"].softmax(-1), reduction="batchmean")


def likelihood(logits: torch.Tensor, given: Inputs) -> torch.Tensor:
    return F.nll_loss(logits.log_softmax(-1).transpose(1, 2), given["y"], ignore_index=3)


def smoothed(logits: torch.Tensor, given: Inputs) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), given["y"].flatten(), label_smoothing=0.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class LossCase:
    """A module, and what makes so many of its samples from a seed."""

    build: Callable[[], nn.Module]
    inputs: Callable[[int, int], Inputs]
    samples: int = 2  # of the example


def random_tokens(samples: int, seed: int) -> Inputs:
    """Random tokens, with a random class for each."""
    random = torch.Generator().manual_seed(seed)
    tokens, y = (torch.randint(CLASSES, (samples, SEQ), generator=random) for _ in range(2))
    return {"tokens": tokens, "y": y}


def _vectors(samples: int, seed: int) -> Inputs:
    random = torch.Generator().manual_seed(seed)
    sizes = ((samples, SEQ, 6), (samples, SEQ, 5))
    return dict(zip("xy", (torch.randn(size, generator=random) for size in sizes), strict=True))


def _values(loss: Loss, samples: int = 2) -> LossCase:
    return LossCase(build=lambda: Values(loss), inputs=_vectors, samples=samples)


def _plain(loss: Callable[..., torch.Tensor]) -> Loss:
    return lambda made, given: loss(made, given["y"])


CASES: dict[str, LossCase] = {
    "mse": _values(_plain(F.mse_loss)),
    "mse_of_microbatch": _values(_plain(F.mse_loss), samples=4),  # as many as a microbatch of two devices has
    "l1": _values(_plain(F.l1_loss)),
    "smooth_l1": _values(_plain(F.smooth_l1_loss)),
    "huber": _values(_plain(F.huber_loss)),
    "bce": _values(lambda made, given: F.binary_cross_entropy_with_logits(made, given["y"].sigmoid())),
    "kl": _values(distance, samples=4),
    "hand_written": _values(hand_written),
    "by_batch_size": _values(by_batch_size, samples=4),
    "nll": LossCase(build=lambda: Tokens(likelihood), inputs=random_tokens),
    "smoothed": LossCase(build=lambda: Tokens(smoothed), inputs=random_tokens),
    "z_loss": LossCase(build=lambda: Tokens(z_loss), inputs=random_tokens),
    "weighted": LossCase(build=Weighted, inputs=random_tokens),
    "two_heads": LossCase(build=Ahead, inputs=random_tokens),
    "balanced": LossCase(build=Balanced, inputs=random_tokens),
    "recurrent": LossCase(build=Recurrent, inputs=random_tokens),
    "normalized": LossCase(build=Normalized, inputs=_vectors),
    "adapted": LossCase(build=adapted, inputs=random_tokens),
    "frozen_embedding": LossCase(build=frozen_embedding, inputs=random_tokens),
    "frozen_tower": LossCase(build=Seeing, inputs=_vectors),
    "biases_only": LossCase(build=biases_only, inputs=random_tokens),
}
