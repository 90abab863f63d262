"""The check before the first step: a plan's loss and gradients are those of the module on one process."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist

from trainwright.errors import TrainwrightError
from trainwright.runtime.gradient_check import Tolerance, WeightDifference, gradient_difference
from trainwright.runtime.one_process import OneProcess, ReferenceGradients, run_reference
from trainwright.runtime.tracing.traced import Inputs
from trainwright.runtime.tracing.whole import evaluate
from trainwright.runtime.trainer import Trainer
from trainwright.runtime.worker import Microbatch

# Relative differences that rounding explains. float32 has 24 bits, bf16 8 and fp16 11: each of the many sums
# behind a gradient is rounded to them, in an order that depends on the plan.
TOLERANCES = {
    "fp32": Tolerance(relative=2e-4, noise=1e-6), "bf16": Tolerance(relative=5e-2, noise=1e-3),
    "fp16": Tolerance(relative=1e-2, noise=1e-4),
}  # fmt: skip
_FLOPS_PER_S = 2e10  # of one core: what decides whether a module is too large to be run on one process
_LONGEST_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What was compared, and the largest relative difference."""

    weights: int
    relative: float
    layers: tuple[int, int]

    def __str__(self) -> str:
        few, all_of_them = self.layers
        where = f" on {few} of {all_of_them} layers" if few < all_of_them else ""
        return (
            f"checked: loss and {self.weights} gradients of the first microbatch{where} equal one process "
            f"within {self.relative:.1e}"
        )


def is_too_large(parameters: int, tokens: int) -> bool:
    """Whether a module takes too long, or too much memory, on one process."""
    flops_per_s = _FLOPS_PER_S * torch.get_num_threads()
    return 6.0 * parameters * tokens > _LONGEST_S * flops_per_s or 8.0 * parameters > _free_bytes() / 4


def _free_bytes() -> float:
    return float(os.sysconf("SC_AVPHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")


def check_gradients(trainer: Trainer, alone: OneProcess, first: Microbatch, inputs: Inputs) -> CheckResult:
    """Raise if a plan's loss or gradients are not those of the module; all processes call it together.

    The first microbatch stands in the place of all of them, so that their mean is its own loss. Dropout is
    off on both sides. Weights, optimizer, random numbers and data are as before.
    """
    rank = dist.get_rank()
    reference = run_reference(alone, inputs) if rank == 0 else None
    loss, differences, largest = _compare(trainer, alone, first, reference)
    tolerance = TOLERANCES[trainer.worker.program.plan.precision]
    expected = _from_first(reference.loss if reference else 0.0)
    bad = [each for each in differences if each.exceeds(tolerance, largest)]
    if bad or not abs(loss - expected) <= tolerance.relative * abs(expected):
        raise TrainwrightError(
            _fault(trainer, alone, (loss, expected), bad) + _blame(alone, inputs, reference, tolerance)
        )
    notable = [each.relative for each in differences if each.largest > tolerance.noise * 100 * largest]
    return CheckResult(
        weights=len(differences), layers=alone.layers,
        relative=max([abs(loss - expected) / max(abs(expected), 1e-30), *notable]),
    )  # fmt: skip


def _compare(
    trainer: Trainer, alone: OneProcess, first: Microbatch, reference: ReferenceGradients | None
) -> tuple[float, list[WeightDifference], float]:
    """The loss of the plan, the differences of all weights' gradients, and the largest gradient of all."""
    computer = trainer.worker.computer
    computer.drops = False
    try:
        share = trainer.backward([first] * trainer.worker.program.plan.microbatches)
    finally:
        computer.drops = True
    loss = trainer.worker.whole_loss(share)
    own = []
    largest = 0.0
    for key, gradient, rounding in _shared(alone, reference):
        largest = max(largest, float(gradient.abs().max()) if gradient.numel() else 0.0)
        if key in trainer.pieces:
            own.append(gradient_difference(trainer, key, gradient, rounding))
    for values in (values for _, _, _, values in trainer.pieces.values()):
        values.grad = None
    gathered: list[list[WeightDifference]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(gathered, own)
    worst: dict[str, WeightDifference] = {}
    for each in (each for listed in gathered for each in listed):
        if each.weight not in worst or not each.difference <= worst[each.weight].difference:
            worst[each.weight] = each
    return loss, list(worst.values()), largest


def _shared(
    alone: OneProcess, reference: ReferenceGradients | None
) -> Iterator[tuple[str, torch.Tensor, float]]:
    """The gradient of every weight, one after another, as the first process has found them."""
    for key, weight in alone.traced.weights.items():
        shape = [weight.shape[at] for at in weight.order] if weight.order else list(weight.shape)
        gradient = reference.gradients[key] if reference else torch.empty(shape)
        dist.broadcast(gradient, 0)
        yield key, gradient, _from_first(reference.rounding[key] if reference else 0.0)


def _from_first(value: float) -> float:
    shared = torch.tensor(value, dtype=torch.float64)
    dist.broadcast(shared, 0)
    return float(shared)


def _fault(
    trainer: Trainer, alone: OneProcess, losses: tuple[float, float], bad: list[WeightDifference]
) -> str:
    """What differs, in one line."""
    plan = trainer.worker.program.plan.name
    found, expected = losses
    said = f"loss {found:.7g}, on one process {expected:.7g}"
    if bad:
        worst = sorted(bad, key=lambda each: -each.relative)[:3]
        named = ", ".join(f"{each.weight} by {each.relative:.1e} of its largest element" for each in worst)
        said += f"; {len(bad)} of {len(alone.traced.weights)} gradients differ: {named}"
    return f'check of plan "{plan}": {said}; nothing was trained; '


def _blame(
    alone: OneProcess, inputs: Inputs, reference: ReferenceGradients | None, tolerance: Tolerance
) -> str:
    """Whether the trace of the module is wrong, or its execution under the plan, and what to do."""
    wrong = reference is not None and not trace_agrees(alone, inputs, reference, tolerance)
    right = "its trace is right, its execution under the plan is not"
    fault = "the trace of the module is wrong" if _from_first(float(wrong)) else right
    return f"{fault}: report this, use another plan, or skip the check with --no-check"


def trace_agrees(
    alone: OneProcess, inputs: Inputs, reference: ReferenceGradients, tolerance: Tolerance
) -> bool:
    """Whether the operators of a trace, one after another, have the loss and gradients of the module."""
    module = alone.build()
    parameters = dict(module.named_parameters(remove_duplicate=False))
    loss = next(iter(evaluate(alone.traced, parameters, inputs, drops=False).values()))
    loss.sum().backward()  # type: ignore[no-untyped-call]
    largest = max(float(each.abs().max()) for each in reference.gradients.values())
    if not abs(float(loss.detach()) - reference.loss) <= tolerance.relative * abs(reference.loss):
        return False
    for key, weight in alone.traced.weights.items():
        gradient = parameters[weight.names[0]].grad
        found = torch.zeros(()) if gradient is None else weight.load(gradient).float()
        expected = reference.gradients[key]
        difference = WeightDifference(
            weight=key, difference=float((found - expected).abs().max()),
            largest=float(expected.abs().max()), rounding=reference.rounding[key],
        )  # fmt: skip
        if difference.exceeds(tolerance, largest):
            return False
    return True
