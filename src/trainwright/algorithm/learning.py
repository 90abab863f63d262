"""How weights are updated from gradients: the optimizer of every worker, and its learning rate."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import torch

from trainwright.errors import BadInput


def constant(step: int) -> float:
    """A learning rate that stays."""
    return 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """SGD (with momentum, if that is not 0) or AdamW; the rate at a step is `rate * share(step)`.

    Gradients whose norm is above `clip` are scaled down to it (0: never); decay is for matrices alone.
    """

    optimizer: Literal["sgd", "adamw"] = "sgd"
    rate: float = 0.1
    momentum: float = 0.0
    betas: tuple[float, float] = (0.9, 0.95)
    epsilon: float = 1e-8
    decay: float = 0.0
    clip: float = 0.0
    share: Callable[[int], float] = constant
    fused: bool = False  # AdamW in one call: faster, and other in the last digits

    def __post_init__(self) -> None:
        if self.optimizer not in ("sgd", "adamw"):
            raise BadInput("optimizer", self.optimizer, "is unknown", "use sgd or adamw")
        if not self.rate > 0:
            raise BadInput("learning rate", self.rate, "is not above 0", "write it like 0.1")

    def build(self, parameters: Iterable[torch.Tensor]) -> torch.optim.Optimizer:
        """The optimizer of some weights."""
        listed = list(parameters)
        groups = [
            {"params": [each for each in listed if each.ndim > 1], "weight_decay": self.decay},
            {"params": [each for each in listed if each.ndim <= 1], "weight_decay": 0.0},
        ]
        kept = [group for group in groups if group["params"]]
        if self.optimizer == "sgd":
            return torch.optim.SGD(kept, lr=self.rate, momentum=self.momentum)
        return torch.optim.AdamW(
            kept, lr=self.rate, betas=self.betas, eps=self.epsilon, fused=self.fused or None
        )
