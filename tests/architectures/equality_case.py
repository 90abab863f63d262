"""One architecture under one plan after another, each compared with the module itself on one process."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import cache

import torch
from torch import nn

import trainwright
from tests.architectures.forked import ProcessFailed, run_forked
from tests.architectures.subject import Inputs, Subject
from trainwright.errors import TrainwrightError
from trainwright.plan.expand import expand
from trainwright.plan.strategy import parse_strategy
from trainwright.program.lower import Program, lower
from trainwright.runtime.gradient_check import FLOAT32, build_microbatch, gradient_differences
from trainwright.runtime.machine import build_setting
from trainwright.runtime.quiet import quiet
from trainwright.runtime.tracing.traced import Traced
from trainwright.runtime.trainer import Recipe, build_trainer, initialize
from trainwright.runtime.worker import Microbatch, build_worker

PLANS = {
    "dp": "dp2 mb2", "tp": "tp2 mb4", "tp+sp": "tp2 sp mb4", "pp 1F1B": "pp2 mb2 1f1b",
    "interleaved": "pp2 vpp2 mb2 interleaved", "zero3": "dp2 mb2 zero3", "dp×tp": "dp2 tp2 mb2",
    "cp": "cp2 mb4", "ep": "dp2 ep2 mb2",
}  # fmt: skip
STEPS, SAMPLES, TRACED_SAMPLES = 3, 8, 2
_TIMEOUT_S = 180.0
EQUAL, REFUSED, WRONG, CRASH = "equal", "refused", "WRONG", "CRASH"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of an architecture under a plan; `detail` is a reason or what differs."""

    name: str
    plan: str
    result: str
    detail: str = ""
    trace: str = ""
    relative: float = 0.0  # the largest difference of a gradient, relative to that weight's largest element

    def stored(self) -> dict[str, object]:
        """As JSON has it."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceStep:
    """A step of the module itself: its inputs, loss, gradient norm, and gradients after clipping."""

    inputs: Inputs
    loss: float
    norm: float
    gradients: Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A traced module, its first weights, and three steps of it on one process."""

    traced: Callable[[int], Traced]  # for microbatches of so many samples
    recipe: Recipe
    first: Mapping[str, torch.Tensor]
    steps: Sequence[ReferenceStep]


def plans_of(subject: Subject, chosen: Sequence[str] = ()) -> list[str]:
    """The plans that apply to an architecture, by name."""
    fits = {"cp": subject.sequence and not subject.experts, "ep": subject.experts}
    return [name for name in PLANS if fits.get(name, True) and (not chosen or name in chosen)]


def compare(subject: Subject, chosen: Sequence[str] = ()) -> list[Verdict]:
    """The verdict on every plan that applies; the module is traced once, and each plan has its processes."""
    listed = plans_of(subject, chosen)
    try:
        with quiet():
            reference = build_reference(subject)
    except TrainwrightError as error:
        return [Verdict(name=subject.name, plan=plan, result=REFUSED, detail=str(error)) for plan in listed]
    return [_under(subject.name, plan, reference) for plan in listed]


def build_reference(subject: Subject) -> Reference:
    """Trace a module as the command does, and train it on one process."""
    module = subject.build_random()
    traced = trainwright.trace(deepcopy(module), subject.inputs(TRACED_SAMPLES, 0))
    own = cache(lambda samples: trainwright.trace(subject.build_random(), subject.inputs(samples, 0)))
    parameters = dict(module.named_parameters(remove_duplicate=False))
    first = {name: each.detach().clone() for name, each in parameters.items()}
    batches = [subject.inputs(SAMPLES, 100 + step) for step in range(STEPS)]
    norm = _backward(module, batches[0])[1]
    # Half of the first norm, so that gradients are clipped.
    recipe = Recipe(rate=1e-4, steps=STEPS, warmup=0, clip=float(f"{norm / 2:.3g}"), epsilon=1e-5)
    optimizer = torch.optim.AdamW(
        _groups(parameters, recipe), lr=recipe.rate, betas=recipe.betas, eps=recipe.epsilon
    )
    steps = []
    for number, inputs in enumerate(batches):
        loss, norm = _backward(module, inputs)
        torch.nn.utils.clip_grad_norm_(module.parameters(), recipe.clip)
        gradients = {
            name: torch.zeros_like(each) if each.grad is None else each.grad.clone()
            for name, each in parameters.items()
        }
        steps.append(ReferenceStep(inputs=inputs, loss=loss, norm=norm, gradients=gradients))
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate * recipe.share(number)
        optimizer.step()
    return Reference(
        traced=(lambda samples: traced) if traced.any_batch else own, recipe=recipe, first=first,
        steps=steps,
    )  # fmt: skip


def _backward(module: nn.Module, inputs: Inputs) -> tuple[float, float]:
    """The loss and the gradient norm of a module, which has its gradients after it."""
    module.zero_grad()
    returned = module(**{name: each.clone() for name, each in inputs.items()})
    loss = returned if isinstance(returned, torch.Tensor) else returned["loss"]
    loss.backward()
    found = [each.grad.norm() for each in module.parameters() if each.grad is not None]
    return float(loss.detach()), float(torch.stack(found).norm())


def _groups(parameters: Mapping[str, nn.Parameter], recipe: Recipe) -> list[dict[str, object]]:
    """Parameters that decay, and the others."""
    unique = {id(each): (name, each) for name, each in parameters.items()}
    wide = {name for name, each in unique.values() if each.dim() > 1 and not name.endswith("bias")}
    decayed = [each for name, each in unique.values() if name in wide]
    plain = [each for name, each in unique.values() if name not in wide]
    return [{"params": decayed, "weight_decay": recipe.decay}, {"params": plain, "weight_decay": 0.0}]


def _under(name: str, plan: str, reference: Reference) -> Verdict:
    text = PLANS[plan]
    try:
        strategy = parse_strategy(text)
        with quiet():
            traced = reference.traced(strategy.dp * strategy.micro_batch)
        expanded = replace(expand(strategy, traced.graph, SAMPLES), precision="fp32")
        program = lower(build_setting(traced.graph, expanded.devices, traced.seq, "fp32"), expanded)
    except TrainwrightError as error:
        return Verdict(name=name, plan=plan, result=REFUSED, detail=str(error))
    except Exception as error:
        return Verdict(name=name, plan=plan, result=CRASH, detail=f"{type(error).__name__}: {error}"[:300])
    try:
        shares = run_forked(
            lambda rank: _train(rank, program, traced, reference), expanded.devices, _TIMEOUT_S
        )
    except ProcessFailed as error:
        result = REFUSED if error.refused else CRASH
        return Verdict(name=name, plan=plan, result=result, detail=error.text, trace=error.trace)
    faults = list(dict.fromkeys(fault for share in shares for fault in share[0]))
    relative = max(share[1] for share in shares)
    return Verdict(
        name=name, plan=plan, result=WRONG if faults else EQUAL, detail="; ".join(faults), relative=relative
    )


def _train(rank: int, program: Program, traced: Traced, reference: Reference) -> tuple[list[str], float]:
    """Three steps on one process of a plan: what differs, and the largest relative difference."""
    steps = reference.steps
    trainer = build_trainer(
        build_worker(program, rank, traced.kernels, torch.device("cpu")), reference.recipe, traced.decayed
    )
    initialize(trainer.worker, lambda key, sizes: _weight(traced, key, reference.first))
    faults: list[str] = []
    worst = 0.0
    for number, step in enumerate(steps):
        outcome = trainer.take(_microbatches(program, traced, step.inputs))
        faults += _odd_numbers(number, "loss", outcome.loss, step.loss)
        faults += _odd_numbers(number, "gradient norm", outcome.gradient_norm, step.norm)
        largest = max(float(each.abs().max()) for each in step.gradients.values())
        differences = gradient_differences(
            trainer,
            lambda key, step=step: _weight(traced, key, step.gradients),  # type: ignore[misc]
        )
        bad = [each for each in differences if each.exceeds(FLOAT32, largest)]
        faults += [f"step {number + 1}: gradient of {each.weight} off by {each.relative:.1e}" for each in bad]
        notable = [each.relative for each in differences if each.largest > FLOAT32.noise / 1e-2 * largest]
        worst = max([worst, *notable])
        if faults:
            break
    return faults, worst


def _odd_numbers(step: int, what: str, found: float, expected: float) -> list[str]:
    if abs(found - expected) <= FLOAT32.relative * abs(expected):
        return []
    return [f"step {step + 1}: {what} {found:.7g} instead of {expected:.7g}"]


def _weight(traced: Traced, key: str, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
    weight = traced.weights[key]
    return weight.load(tensors[weight.names[0]])


def _microbatches(program: Program, traced: Traced, inputs: Inputs) -> list[Microbatch]:
    plan = program.plan
    return [
        build_microbatch(traced, {name: each[at : at + plan.batch] for name, each in inputs.items()})
        for at in range(0, plan.batch * plan.microbatches, plan.batch)
    ]
