"""A model trained under a plan, beside the same model on one device."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch

from tests.runtime.small import build_small
from trainwright.model.flow import wire
from trainwright.model.graph import Graph
from trainwright.plan.expand import expand
from trainwright.plan.plan import Plan
from trainwright.plan.strategy import parse_strategy
from trainwright.plan.zoo import ZOO, build_zoo, parse_zoo
from trainwright.program.lower import lower
from trainwright.program.reference import Data, build_data
from trainwright.runtime.kernels import kernel_of
from trainwright.runtime.machine import build_setting
from trainwright.runtime.trainer import Recipe, Trainer, build_trainer, initialize
from trainwright.runtime.whole import Whole, build_initial, module_name
from trainwright.runtime.work import Kernel, Work
from trainwright.runtime.worker import Microbatch, build_worker

SEQ = 8
# Adam divides by the size of a gradient: with the usual epsilon it makes rounding of those near 0 large.
RECIPE = Recipe(rate=1e-3, steps=5, warmup=2, clip=0.5, epsilon=1e-5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The largest differences from one device over some steps; relative where values are above 1."""

    loss: float
    gradient: float
    norm: float
    where: str


def plan_of(text: str, graph: Graph, devices: int, batch: int = 8) -> Plan:
    """The plan that a strategy or a name of the zoo states."""
    if text.split()[0] in ZOO:
        name, parameters = parse_zoo(text)
        return replace(build_zoo(name, graph, devices, batch, **parameters), precision="fp32")
    return replace(expand(parse_strategy(text), graph, batch), precision="fp32")


def compare_named(rank: int, model: str, text: str, devices: int) -> Difference:
    """The differences of a small model under a named plan."""
    graph = build_small(model)
    plan = plan_of(text, graph, devices)
    if model != "swin":
        return compare(rank, graph, plan, SEQ)
    # Its norms stand behind its branches: they make rounding large, of branches near 0 and after large steps.
    return compare(rank, graph, plan, SEQ, recipe=replace(RECIPE, rate=1e-6), scale=10.0)


def compare(
    rank: int, graph: Graph, plan: Plan, seq: int, *, recipe: Recipe = RECIPE, scale: float = 1.0
) -> Difference:
    """Train five steps under a plan and on one device; this process's share of the differences.

    `scale` is what random weights are multiplied with at first.
    """
    plan = replace(plan, precision="fp32")
    program = lower(build_setting(graph, max(plan.devices, 1), seq, "fp32"), plan)
    alone = train_alone(_Named(graph), plan.batch, plan.microbatches, seq, recipe, scale)
    trainer = build_trainer(build_worker(program, rank, alone.kernels, torch.device("cpu")), recipe)
    initialize(trainer.worker, lambda key, sizes: alone.first[module_name(key)])
    found = Difference(loss=0.0, gradient=0.0, norm=0.0, where="")
    for batch, loss, norm, gradients in alone.steps:
        outcome = trainer.take(batch)
        error, where = _worst(trainer, gradients)
        found = Difference(
            loss=max(found.loss, abs(outcome.loss - loss) / max(loss, 1.0)),
            gradient=max(found.gradient, error),
            norm=max(found.norm, abs(outcome.gradient_norm - norm) / max(norm, 1.0)),
            where=where if error > found.gradient else found.where,
        )
    trainer.worker.groups.close()
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """Five steps of a model on one device: its first weights; data, loss, norm and gradients of each step."""

    kernels: Mapping[str, Kernel]
    first: Mapping[str, torch.Tensor]
    steps: Sequence[tuple[list[Microbatch], float, float, Mapping[str, torch.Tensor]]]


@dataclass(frozen=True, slots=True, eq=False)
class _Named:
    """A graph that is known by its text: equal ones are one, though they came through a pipe."""

    graph: Graph

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Named) and self.graph == other.graph

    def __hash__(self) -> int:
        return hash(self.graph.name)


@lru_cache(maxsize=16)
def train_alone(named: _Named, size: int, microbatches: int, seq: int, recipe: Recipe, scale: float) -> Alone:
    """The steps that every plan with these microbatches must equal."""
    graph, kernels = named.graph, kernels_of(named.graph)
    whole = Whole(graph, kernels, seq)
    with torch.no_grad():
        for each in whole.parameters():
            each.mul_(scale if float(each.max()) > float(each.min()) else 1.0)
    first = {name: each.detach().clone() for name, each in whole.table.items()}
    optimizer, steps = _optimizer(whole), []
    for step in range(5):
        data = build_data(graph, wire(graph), size, seq, microbatches, step)
        batch = batch_of(data)
        optimizer.zero_grad()
        total = sum((whole(each.given, each.targets) for each in batch), torch.zeros(())) / data.tokens
        total.backward()
        norm = float(torch.nn.utils.clip_grad_norm_(whole.parameters(), recipe.clip))
        gradients = {
            name: torch.zeros_like(each) if each.grad is None else each.grad.clone()
            for name, each in whole.table.items()
        }
        steps.append((batch, float(total.detach()), norm, gradients))
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate * recipe.share(step)
        optimizer.step()
    return Alone(kernels=kernels, first=first, steps=steps)


def losses(rank: int, model: str, text: str, devices: int) -> tuple[list[float], list[float]]:
    """The losses of five steps on the same data, in fp32 and in bf16."""
    graph, found = build_small(model), []
    for precision in ("fp32", "bf16"):
        plan = replace(plan_of(text, graph, devices), precision=precision)
        program = lower(build_setting(graph, devices, SEQ, precision), plan)
        worker = build_worker(program, rank, kernels_of(graph), torch.device("cpu"))
        trainer = build_trainer(worker, replace(RECIPE, rate=1e-2))
        initialize(worker, build_initial(graph))
        data = build_data(graph, program.instances, plan.batch, SEQ, plan.microbatches, 0)
        found.append([trainer.take(batch_of(data)).loss for _ in range(5)])
        worker.groups.close()
    return found[0], found[1]


def batch_of(data: Data) -> list[Microbatch]:
    """Random data as tensors."""
    return [
        Microbatch(
            given={name: _tensor(values) for name, values in given.items()},
            targets={name: _tensor(values) for name, values in targets.items()},
        )
        for given, targets in zip(data.given, data.targets, strict=True)
    ]


def _tensor(values: object) -> torch.Tensor:
    tensor = torch.as_tensor(values)
    return tensor.float() if tensor.is_floating_point() else tensor


def _optimizer(whole: Whole) -> torch.optim.Optimizer:
    named = dict(whole.table.items())
    decayed = {name for name, each in named.items() if each.dim() > 1 and not name.endswith("bias")}
    groups = [
        {"params": [named[name] for name in sorted(decayed)], "weight_decay": RECIPE.decay},
        {"params": [each for name, each in named.items() if name not in decayed], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=RECIPE.rate, betas=RECIPE.betas, eps=RECIPE.epsilon)


def _worst(trainer: Trainer, gradients: Mapping[str, torch.Tensor]) -> tuple[float, str]:
    """The largest difference of a gradient that this process owns, and of which weight."""
    largest = max(float(each.abs().max()) for each in gradients.values())
    found = (0.0, "")
    for key, (slot, first, last, values) in trainer.pieces.items():
        part = gradients[module_name(key)][
            tuple(slice(low, high) for low, high in slot.region.values())
        ].reshape(-1)
        assert values.grad is not None
        error = float((values.grad - part[first:last]).abs().max()) / max(largest, 1.0)
        found = max(found, (error, key))
    return found


def kernels_of(graph: Graph) -> Mapping[str, Kernel]:
    """Kernels of a catalog graph, or of a drawn one: element-wise operators of drawn ones bend or add."""
    return {
        each.name: _drawn if graph.name == "drawn" and each.op.kind == "elementwise" else kernel_of(each.op)
        for each in wire(graph)
        if each.op.kind not in ("matmul", "grouped_matmul", "loss")
    }


def _drawn(work: Work) -> Sequence[torch.Tensor]:
    first, *others = work.inputs
    if not work.op.saved:
        return (sum(others, first).clone(),)
    result = first.tanh()
    for each in others:
        result = result * each
    return (result,)
