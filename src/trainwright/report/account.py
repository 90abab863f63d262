"""One simulated plan in the numbers that people ask for."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from trainwright.economics.goodput import Goodput
from trainwright.estimate.step import estimate
from trainwright.estimate.tables import estimate_tables
from trainwright.estimate.types import TIMES, Job
from trainwright.model.totals import model_flops, op_flops
from trainwright.plan.sharding import Sharding, stack_shardings
from trainwright.plan.strategy import Strategy, stack_strategies
from trainwright.program.lower import Program
from trainwright.program.table import Floats
from trainwright.program.traffic import Traffic, traffic
from trainwright.report.budget import Budget, Terms, budget_of, goodput_of
from trainwright.simulate.breakdown import BUBBLE
from trainwright.simulate.critical import CriticalPath, Freed, critical_path, free_causes
from trainwright.simulate.memory import Holding, holdings
from trainwright.simulate.needs import Need
from trainwright.simulate.power import drawn
from trainwright.simulate.whole import Simulated

_MOST = 20  # rows of tasks and of what is held
_LAYER = re.compile(r"\.\d+(?=/|\s)")  # the number of a layer in the label of a task


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What one cause adds to the step, on the busiest place and on the mean device; hidden is beside that."""

    busiest_s: float
    mean_s: float
    busiest_hidden_s: float = 0.0
    mean_hidden_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Step time and memory of the fullest device, as the closed form has them."""

    step_s: float
    total_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A step of a plan: speed, where its time goes, what it holds and sends, what it waits for.

    `mfu`, `hfu`, power and money are of the devices that the plan uses, and count as those of a `Summary` do;
    `place_w` is the power of a device of each place, `device_w` that of the mean device. The parts
    of `time_s` add up to the step, on the busiest place (which is idle for the shortest time) and on the mean
    device. `path_s` has the tasks of the critical path, those of all layers together; most first.
    """

    plan: str
    devices: int
    places: int
    tasks: int
    global_batch: int
    microbatches: int
    seq: int
    step_s: float
    low_s: float
    high_s: float
    tokens_per_s: float
    tokens_per_s_per_device: float
    mfu: float
    hfu: float
    power_w: float  # of all devices of the plan, at the meter
    device_w: float
    place_w: tuple[float, ...]
    joules_per_token: float
    tokens_per_joule: float
    goodput: Goodput | None  # nothing, if no interruptions are asked about
    effective_tokens_per_s: float
    budget: Budget
    busiest: tuple[int, ...]
    time_s: Mapping[str, Spent]
    fits: bool
    capacity_bytes: float
    memory: tuple[Need, ...]
    fullest: int
    holdings: tuple[Holding, ...]
    traffic: tuple[Traffic, ...]
    path_cause_s: Mapping[str, float]
    path_s: Mapping[str, float]
    closed_form: Predicted | None
    free: tuple[Freed, ...]


def account_of(
    simulated: Simulated, terms: Terms, *, closed_form: Predicted | None = None, free: bool = False
) -> Account:
    """A simulated plan, priced by terms; with `free`, what each cause would save if it took no time."""
    plan, setting, step_s = simulated.plan, simulated.program.setting, simulated.step_s
    table, path = simulated.timeline.table, critical_path(simulated.timeline)
    batch = plan.batch * plan.microbatches
    tokens_per_s = batch * setting.seq / step_s
    useful = model_flops(setting.graph, batch, setting.seq)
    rate = plan.devices * setting.cluster.device.peak(plan.precision) * step_s
    busiest = int(np.argmin(simulated.breakdown.time_s[BUBBLE]))
    power = drawn(simulated)
    used = replace(setting, cluster=replace(setting.cluster, count=plan.devices))
    interrupted = goodput_of(used, plan.precision, step_s, terms)
    effective = tokens_per_s * (interrupted.speed if interrupted else 1.0)
    return Account(
        plan=plan.name,
        devices=plan.devices,
        places=len(table.places),
        tasks=len(table),
        global_batch=batch,
        microbatches=plan.microbatches,
        seq=setting.seq,
        step_s=step_s,
        low_s=step_s * terms.interval.low,
        high_s=step_s * terms.interval.high,
        tokens_per_s=tokens_per_s,
        tokens_per_s_per_device=tokens_per_s / plan.devices,
        mfu=useful / rate,
        hfu=(useful + recomputed_flops(simulated.program)) / rate,
        power_w=power.power_w,
        device_w=power.device_w,
        place_w=power.place_w,
        joules_per_token=power.power_w / tokens_per_s,
        tokens_per_joule=tokens_per_s / power.power_w if power.power_w else inf,
        goodput=interrupted,
        effective_tokens_per_s=effective,
        budget=budget_of(batch * setting.seq, (tokens_per_s, effective), power.power_w, plan.devices, terms),
        busiest=table.places[busiest],
        time_s=_spent(simulated, busiest),
        fits=simulated.fits,
        capacity_bytes=simulated.capacity_bytes,
        memory=simulated.needs,
        fullest=simulated.fullest,
        holdings=_held(simulated),
        traffic=traffic(simulated.program),
        path_cause_s=path.cause_s,
        path_s=_path_s(path),
        closed_form=closed_form,
        free=free_causes(simulated.timeline) if free else (),
    )


def predict(job: Job, strategy: Strategy) -> Predicted:
    """What the closed form says of a strategy."""
    result = estimate(job, stack_strategies([strategy]))
    return Predicted(step_s=float(result.step_s[0]), total_bytes=float(result.total_bytes[0]))


def predict_tables(job: Job, sharding: Sharding) -> Predicted:
    """What the closed form says of a recommender's sharding."""
    result = estimate_tables(job, stack_shardings([sharding]))
    return Predicted(step_s=float(result.step_s[0]), total_bytes=float(result.total_bytes[0]))


def recomputed_flops(program: Program) -> float:
    """FLOPs of a step that are done again, over all devices; copies of an operator count once."""
    microbatches, routes = program.plan.microbatches, len(program.routes)
    total = 0.0
    for number, (route, builder) in enumerate(zip(program.routes, program.builders, strict=True)):
        again = {step.instance for step in route.steps if step.phase == "R" and step.kind == "compute"}
        instances = [program.instances[index] for index in again]
        flops = sum(op_flops(each.op, builder.sizes(each)) for each in instances)
        total += len(range(number, microbatches, routes)) * flops
    return total


def _spent(simulated: Simulated, busiest: int) -> dict[str, Spent]:
    """Every cause that takes time, in the order in which a closed form lists them."""
    found = simulated.breakdown
    devices = np.array([len(each) for each in simulated.timeline.table.places], float)
    none = np.zeros(len(devices))

    def both(seconds: Floats) -> tuple[float, float]:
        return float(seconds[busiest]), float(np.average(seconds, weights=devices))

    result = {}
    for name in sorted(found.time_s, key=(*TIMES, *found.time_s).index):
        (own, mean), (hidden, mean_hidden) = both(found.time_s[name]), both(found.hidden_s.get(name, none))
        result[name] = Spent(
            busiest_s=own, mean_s=mean, busiest_hidden_s=hidden, mean_hidden_s=mean_hidden
        )  # fmt: skip
    return result


def _held(simulated: Simulated) -> tuple[Holding, ...]:
    """What holds most on the fullest place: by label, that of all layers together."""
    sums: dict[tuple[str, str], tuple[float, int]] = {}
    for each in holdings(simulated.timeline, simulated.fullest, most=len(simulated.timeline.table)):
        key = (_of_all_layers(each.label), each.category)
        held, buffers = sums.get(key, (0.0, 0))
        sums[key] = (held + each.held_bytes, buffers + each.buffers)
    found = [
        Holding(label=label, category=category, held_bytes=held, buffers=buffers)
        for (label, category), (held, buffers) in sums.items()
    ]
    return tuple(sorted(found, key=lambda each: -each.held_bytes)[:_MOST])


def _path_s(path: CriticalPath) -> dict[str, float]:
    """Seconds by label, those of all layers together; most first."""
    sums: dict[str, float] = {}
    for label, seconds in path.label_s.items():
        name = _of_all_layers(label)
        sums[name] = sums.get(name, 0.0) + seconds
    return dict(sorted(sums.items(), key=lambda item: -item[1])[:_MOST])


def _of_all_layers(label: str) -> str:
    """A label without the number of its layer."""
    return _LAYER.sub(".*", label)
