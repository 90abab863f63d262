"""Networks as functions of their weights, so that a slice of the weights is a network too."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import torch
import torch.nn.functional as F

from trainwright.algorithm.anatomy import Anatomy, Axis, Weight

Values = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples and their right answers."""

    inputs: torch.Tensor
    targets: torch.Tensor

    def part(self, rank: int, workers: int) -> "Batch":
        """The samples of one worker; the count divides by that of workers."""
        count = len(self.inputs) // workers
        chosen = slice(rank * count, (rank + 1) * count)
        return Batch(self.inputs[chosen], self.targets[chosen])


class Network(Protocol):
    """A model whose weights are given with each call; those of a subnetwork are smaller."""

    @property
    def anatomy(self) -> Anatomy:
        """Its weights and units."""
        ...

    def initial(self, seed: int) -> dict[str, torch.Tensor]:
        """First weights."""
        ...

    def outputs(self, values: Values, inputs: torch.Tensor) -> torch.Tensor:
        """Logits of some inputs."""
        ...

    def loss(self, values: Values, batch: Batch) -> torch.Tensor:
        """The mean loss of a batch."""
        ...


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean over all answers."""
    loss: torch.Tensor = F.cross_entropy(logits.flatten(0, -2), targets.flatten())
    return loss


def draw(sizes: tuple[int, ...], fan: int, seed: torch.Generator) -> torch.Tensor:
    """Numbers of a normal distribution whose variance is 2/fan (He et al. 2015)."""
    return torch.randn(sizes, generator=seed) * math.sqrt(2.0 / fan)


@dataclass(frozen=True, kw_only=True)
class Mlp:
    """Hidden layers of neurons with rectifiers; the neurons of each are a group of units."""

    inputs: int
    hidden: tuple[int, ...]
    classes: int

    @cached_property
    def anatomy(self) -> Anatomy:
        """Weights `layer.I.weight` and `.bias`, groups `hidden.I`."""
        sizes, weights = (self.inputs, *self.hidden, self.classes), []
        axes = (None, *(Axis(group=f"hidden.{i}") for i in range(len(self.hidden))), None)
        for i, (before, after) in enumerate(pairwise(sizes)):
            source = axes[i]
            weights += [
                Weight(
                    name=f"layer.{i}.weight", sizes=(after, before), axes=(axes[i + 1], source),
                    reads=source.group if source else "",
                ),
                Weight(name=f"layer.{i}.bias", sizes=(after,), axes=(axes[i + 1],)),
            ]  # fmt: skip
        return Anatomy(
            weights=tuple(weights), units={f"hidden.{i}": size for i, size in enumerate(self.hidden)}
        )

    def initial(self, seed: int) -> dict[str, torch.Tensor]:
        """He's weights, and biases of 0."""
        source = torch.Generator().manual_seed(seed)
        return {
            each.name: draw(each.sizes, each.sizes[1], source)
            if len(each.sizes) > 1
            else torch.zeros(each.sizes)
            for each in self.anatomy.weights
        }

    def outputs(self, values: Values, inputs: torch.Tensor) -> torch.Tensor:
        """Logits."""
        x, last = inputs, len(self.hidden)
        for i in range(last + 1):
            x = F.linear(x, values[f"layer.{i}.weight"], values[f"layer.{i}.bias"])
            x = F.relu(x) if i < last else x
        return x

    def loss(self, values: Values, batch: Batch) -> torch.Tensor:
        """Cross entropy."""
        return cross_entropy(self.outputs(values, batch.inputs), batch.targets)


@dataclass(frozen=True, kw_only=True)
class ResidualMlp:
    """Residual blocks between two shared ends, as in ResIST: the blocks are the units of one group."""

    inputs: int
    width: int
    inner: int
    blocks: int
    classes: int

    @cached_property
    def anatomy(self) -> Anatomy:
        """Ends `stem` and `head`; `block.I.up` and `.down` belong to block I."""
        weights = list(_linear("stem", self.width, self.inputs))
        for i in range(self.blocks):
            weights += _linear(f"block.{i}.up", self.inner, self.width, block=i)
            weights += _linear(f"block.{i}.down", self.width, self.inner, block=i, reads="blocks")
        weights += _linear("head", self.classes, self.width)
        return Anatomy(weights=tuple(weights), units={"blocks": self.blocks})

    def initial(self, seed: int) -> dict[str, torch.Tensor]:
        """He's weights; the output of a block is small at first, so that depth does not blow up."""
        source = torch.Generator().manual_seed(seed)
        found = {
            each.name: draw(each.sizes, each.sizes[1], source)
            if len(each.sizes) > 1
            else torch.zeros(each.sizes)
            for each in self.anatomy.weights
        }
        for i in range(self.blocks):
            found[f"block.{i}.down.weight"] /= self.blocks**0.5
        return found

    def outputs(self, values: Values, inputs: torch.Tensor) -> torch.Tensor:
        """Logits, through the blocks that are there."""
        x = F.relu(F.linear(inputs, values["stem.weight"], values["stem.bias"]))
        for i in range(self.blocks):
            if f"block.{i}.up.weight" in values:
                inner = F.relu(F.linear(x, values[f"block.{i}.up.weight"], values[f"block.{i}.up.bias"]))
                x = x + F.linear(inner, values[f"block.{i}.down.weight"], values[f"block.{i}.down.bias"])
        return F.linear(x, values["head.weight"], values["head.bias"])

    def loss(self, values: Values, batch: Batch) -> torch.Tensor:
        """Cross entropy."""
        return cross_entropy(self.outputs(values, batch.inputs), batch.targets)


def _linear(
    name: str, after: int, before: int, block: int | None = None, reads: str = ""
) -> tuple[Weight, ...]:
    """A matrix and its bias, of one residual block or of none."""
    owner = None if block is None else ("blocks", block)
    return (
        Weight(name=f"{name}.weight", sizes=(after, before), block=owner, reads=reads),
        Weight(name=f"{name}.bias", sizes=(after,), block=owner, reads=reads),
    )
