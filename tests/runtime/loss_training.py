"""Modules trained under a plan and on one process: losses, every gradient and the norm of all."""

from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import nn

import trainwright
from tests.runtime.equality import RECIPE
from tests.runtime.loss_modules import CASES as LOSS_CASES
from tests.runtime.loss_modules import Inputs
from tests.runtime.rule_modules import CASES as RULE_CASES
from trainwright.plan.expand import expand
from trainwright.plan.strategy import parse_strategy
from trainwright.program.lower import lower
from trainwright.runtime.machine import build_setting
from trainwright.runtime.tracing.traced import Traced
from trainwright.runtime.trainer import Trainer, build_trainer, initialize
from trainwright.runtime.worker import Microbatch, build_worker

BATCH, STEPS = 8, 3
CASES = {**LOSS_CASES, **RULE_CASES}
CLIPPING = replace(RECIPE, clip=0.05)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worst:
    """The largest differences over some steps; those of gradients relative to each weight's own."""

    loss: float
    norm: float
    gradient: float
    where: str
    clipped: bool
    frozen: float  # how far weights have moved that must not
    states: int  # weights that have optimizer state here
    trained: int  # weights that this process trains


@cache
def traced_case(name: str) -> tuple[nn.Module, Traced]:
    """A module, not to be trained itself, and its trace."""
    torch.manual_seed(0)
    case = CASES[name]
    module = case.build()
    return module, trainwright.trace(module, case.inputs(case.samples, 0))


def compare_case(rank: int, name: str, text: str) -> Worst:
    """Train a module under a strategy and on one process; this process's share of the differences."""
    torch.manual_seed(0)
    case = CASES[name]
    first, traced = traced_case(name)
    module = deepcopy(first)
    before = {key: each.detach().clone() for key, each in module.named_parameters()}
    trainer, parameters = _build(rank, module, traced, text)
    plan = trainer.worker.program.plan
    optimizer = torch.optim.AdamW(
        _groups(traced, parameters), lr=CLIPPING.rate, betas=CLIPPING.betas, eps=CLIPPING.epsilon
    )
    found = Worst(loss=0, norm=0, gradient=0, where="", clipped=True, frozen=0, states=0, trained=0)
    for step in range(STEPS):
        batches = [case.inputs(plan.batch, 100 * step + number) for number in range(plan.microbatches)]
        outcome = trainer.take([build_microbatch(traced, each) for each in batches])
        optimizer.zero_grad()
        loss = sum((_loss(module(**each)) for each in batches), torch.zeros(())) / len(batches)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(module.parameters(), CLIPPING.clip)
        error, where = _worst(trainer, traced, parameters)
        found = replace(
            found,
            loss=max(found.loss, abs(outcome.loss - float(loss.detach()))),
            norm=max(found.norm, abs(outcome.gradient_norm - float(norm)) / float(norm)),
            gradient=max(found.gradient, error),
            where=where if error > found.gradient else found.where,
            clipped=found.clipped and float(norm) > CLIPPING.clip,
        )
        for group in optimizer.param_groups:
            group["lr"] = CLIPPING.rate * CLIPPING.share(step)
        optimizer.step()
    moved = [_moved(trainer, traced, before, module, key) for key in trainer.pieces]
    trainer.worker.groups.close()
    states, trained = len(trainer.optimizer.state), len(trainer.trained & set(trainer.pieces))
    return replace(found, frozen=max(moved, default=0.0), states=states, trained=trained)


def build_microbatch(traced: Traced, inputs: Inputs) -> Microbatch:
    """A microbatch of a traced module, from its inputs."""
    given = {value: each.load(inputs[each.name]) for value, each in traced.inputs.items()}
    return Microbatch(given=given, targets={name: of(inputs) for name, of in traced.targets.items()})


def _build(
    rank: int, module: nn.Module, traced: Traced, text: str
) -> tuple[Trainer, dict[str, nn.Parameter]]:
    plan = replace(expand(parse_strategy(text), traced.graph, BATCH), precision="fp32")
    program = lower(build_setting(traced.graph, plan.devices, traced.seq, "fp32"), plan)
    trainer = build_trainer(build_worker(program, rank, traced.kernels, torch.device("cpu")), CLIPPING)
    parameters = dict(module.named_parameters(remove_duplicate=False))
    initialize(
        trainer.worker, lambda key, sizes: traced.weights[key].load(parameters[traced.weights[key].names[0]])
    )
    return trainer, parameters


def _loss(returned: Any) -> torch.Tensor:
    return returned["loss"] if isinstance(returned, dict) else returned  # type: ignore[no-any-return]


def _groups(traced: Traced, parameters: dict[str, nn.Parameter]) -> list[dict[str, object]]:
    """Weights that decay as the trainer lets them, and the others."""
    wide = {
        name
        for key, each in traced.weights.items()
        if len(each.shape) > 1 and not key.endswith("bias")
        for name in each.names
    }
    unique = {id(each): (name, each) for name, each in parameters.items() if each.requires_grad}
    plain = [each for name, each in unique.values() if name not in wide]
    decayed = [each for name, each in unique.values() if name in wide]
    return [{"params": decayed, "weight_decay": CLIPPING.decay}, {"params": plain, "weight_decay": 0.0}]


def _part(traced: Traced, trainer: Trainer, key: str, whole: torch.Tensor) -> torch.Tensor:
    slot, first, last, _ = trainer.pieces[key]
    held = traced.weights[key].load(whole)
    return held[tuple(slice(low, high) for low, high in slot.region.values())].reshape(-1)[first:last]


def _worst(trainer: Trainer, traced: Traced, parameters: dict[str, nn.Parameter]) -> tuple[float, str]:
    found = (0.0, "")
    for key, (_, _, _, values) in trainer.pieces.items():
        grad = parameters[traced.weights[key].names[0]].grad
        if grad is None:
            assert values.grad is None, f"{key} has a gradient, and must not"
            continue
        assert values.grad is not None, f"{key} has no gradient"
        error = (values.grad - _part(traced, trainer, key, grad)).abs().max() / (grad.abs().max() + 1e-7)
        found = max(found, (float(error), key))
    return found


def _moved(
    trainer: Trainer, traced: Traced, before: dict[str, torch.Tensor], module: nn.Module, key: str
) -> float:
    """How far a weight has moved from where it was, or from where one process has moved it."""
    name = traced.weights[key].names[0]
    parameter = module.get_parameter(name)
    wanted = parameter.detach() if parameter.grad is not None else before[name]
    difference = (trainer.pieces[key][3] - _part(traced, trainer, key, wanted)).abs().max()
    return float(difference) if parameter.grad is None else 0.0
