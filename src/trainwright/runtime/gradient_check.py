"""The gradients of a plan against those of the same model on one process, weight by weight."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from trainwright.runtime.parcels import Slot
from trainwright.runtime.tracing.traced import Inputs, Traced
from trainwright.runtime.trainer import Trainer
from trainwright.runtime.worker import Microbatch

WholeGradient = Callable[[str], torch.Tensor]  # the gradient of a whole weight, by its key


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How far two gradients of one weight may differ.

    `relative` is a fraction of the largest element of that weight's own gradient. `noise` is a fraction of
    the largest element over all weights: what rounding leaves of a gradient that is zero in exact arithmetic,
    such as that of a bias of keys, is of the order of the machine epsilon times the terms that cancel.
    """

    relative: float
    noise: float


# float32 has 24 bits (epsilon 1.2e-7): sums of a few thousand terms agree to about 1e-5 in any order.
_TIMES = 4.0  # rounding of one order of operations against that of another
FLOAT32 = Tolerance(relative=1e-4, noise=1e-6)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightDifference:
    """The largest difference in a weight's gradient, and the largest element of the one it should be.

    `rounding` is how far the latter itself is from a more precise one.
    """

    weight: str
    difference: float
    largest: float
    rounding: float = 0.0

    @property
    def relative(self) -> float:
        """The difference as a fraction of the largest element; infinite where that is zero."""
        return self.difference / self.largest if self.largest else float("inf") if self.difference else 0.0

    def exceeds(self, tolerance: Tolerance, largest: float) -> bool:
        """Whether the difference is more than rounding; `largest` is over the gradients of all weights."""
        allowed = tolerance.relative * self.largest + tolerance.noise * largest + _TIMES * self.rounding
        return not self.difference <= allowed


def gradient_differences(trainer: Trainer, whole: WholeGradient) -> list[WeightDifference]:
    """The difference of every weight's gradient on this process, after a step, from the one it should be."""
    return [gradient_difference(trainer, key, whole(key)) for key in trainer.pieces]


def gradient_difference(
    trainer: Trainer, key: str, expected: torch.Tensor, rounding: float = 0.0
) -> WeightDifference:
    """The difference of one weight's gradient on this process from the whole one that it should be."""
    slot, first, last, values = trainer.pieces[key]
    part = _held_part(expected, slot)[first:last].to("cpu", torch.float64)
    own = torch.zeros_like(part) if values.grad is None else values.grad.to("cpu", torch.float64)
    return WeightDifference(
        weight=key, difference=float((own - part).abs().max()) if part.numel() else 0.0,
        largest=float(expected.abs().max()) if expected.numel() else 0.0, rounding=rounding,
    )  # fmt: skip


def _held_part(whole: torch.Tensor, slot: Slot) -> torch.Tensor:
    """The part of a weight that a process holds, flat."""
    return whole[tuple(slice(low, high) for low, high in slot.region.values())].reshape(-1)


def build_microbatch(traced: Traced, inputs: Inputs) -> Microbatch:
    """A microbatch of a traced module from the module's own inputs, by name."""
    return Microbatch(
        given={value: each.load(inputs[each.name]) for value, each in traced.inputs.items()},
        targets={name: of(inputs) for name, of in traced.targets.items()},
    )
