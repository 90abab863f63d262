"""The weights that one worker trains: one flat tensor, views of it by name, and their optimizer."""

from collections.abc import Mapping
from typing import Any

import torch

from trainwright.algorithm.learning import Learning
from trainwright.algorithm.network import Batch, Network


class Local:
    """Weights of a whole network or of a slice of one, their gradients and updates."""

    def __init__(self, network: Network, learning: Learning, values: Mapping[str, torch.Tensor]) -> None:
        self.network, self.learning = network, learning
        self.flat = torch.cat([each.detach().reshape(-1) for each in values.values()])
        sizes = [each.numel() for each in values.values()]
        pieces = self.flat.split_with_sizes(sizes)
        self.views = {
            name: piece.view(each.shape).requires_grad_()
            for (name, each), piece in zip(values.items(), pieces, strict=True)
        }
        self.sizes = sizes
        # Optimizers work number by number: without decay, which matrices alone have, one tensor is as good.
        self.trained = list(self.views.values()) if learning.decay else [self.flat]
        self.optimizer = learning.build(self.trained)

    def gradient(self, batch: Batch, at: torch.Tensor | None = None) -> tuple[float, torch.Tensor]:
        """The loss of a batch and its gradient, flat; at other weights, if they are given."""
        views = self.views if at is None else self._views(at)
        loss = self.network.loss(views, batch)
        found = torch.autograd.grad(loss, list(views.values()))
        return float(loss.detach()), torch.cat([each.reshape(-1) for each in found])

    def _views(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        pieces = flat.detach().split_with_sizes(self.sizes)
        return {
            name: piece.view(view.shape).requires_grad_()
            for (name, view), piece in zip(self.views.items(), pieces, strict=True)
        }

    def update(self, gradient: torch.Tensor, number: int) -> None:
        """Step along a flat gradient."""
        if self.learning.clip:
            norm = float(gradient.norm())
            if norm > self.learning.clip:
                gradient = gradient * (self.learning.clip / (norm + 1e-6))
        pieces = gradient.split_with_sizes([each.numel() for each in self.trained])
        for each, piece in zip(self.trained, pieces, strict=True):
            each.grad = piece.view(each.shape)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning.rate * self.learning.share(number)
        self.optimizer.step()
        for each in self.trained:
            each.grad = None

    def learn(self, number: int, batch: Batch) -> float:
        """A step of this worker alone; the loss before it."""
        loss, gradient = self.gradient(batch)
        self.update(gradient, number)
        return loss

    def values(self) -> dict[str, torch.Tensor]:
        """A copy of the weights."""
        return self.named(self.flat)

    def named(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        """Copies of flat values by the names of the weights."""
        pieces = flat.detach().split_with_sizes(self.sizes)
        return {
            name: piece.view(view.shape).clone()
            for (name, view), piece in zip(self.views.items(), pieces, strict=True)
        }

    def set_flat(self, flat: torch.Tensor) -> None:
        """Replace all weights."""
        self.flat.copy_(flat)

    def kept(self) -> dict[str, Any]:
        """Weights and optimizer."""
        return {"flat": self.flat, "optimizer": self.optimizer.state_dict()}

    def take_over(self, kept: Mapping[str, Any]) -> None:
        """Go on from weights and optimizer."""
        self.flat.copy_(kept["flat"])
        self.optimizer.load_state_dict(kept["optimizer"])
