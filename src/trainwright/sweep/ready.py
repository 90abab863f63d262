"""What design points share that differ in figures alone: a question for the search, and where figures go."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.chosen_optimizer import check_optimizer, with_optimizer
from trainwright.cost.expert_imbalance import check_imbalance
from trainwright.cost.load import Interval, load_constants
from trainwright.cost.source import build_source
from trainwright.errors import BadInput
from trainwright.estimate.types import Job
from trainwright.model.build import build_graph
from trainwright.model.dlrm import TABLES
from trainwright.plan.strategy import PRECISIONS
from trainwright.search.batch_choice import choose_batch
from trainwright.search.batch_target import build_target
from trainwright.search.find import Question
from trainwright.search.usual import able_knobs, check_batch, check_precision, usual_batch
from trainwright.sweep.axes import LOADERS, resolve_field
from trainwright.sweep.paths import Path, value_at, with_value
from trainwright.sweep.points import Points
from trainwright.sweep.types import Axis, Setting, Sweep

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A question at the baseline's figures, and the axes whose figures are still to be put in."""

    question: Question
    setting: Setting
    interval: Interval
    figures: tuple[tuple[Axis, Path], ...]

    def job(self, chosen: Points) -> Job:
        """The job of some points, which share all but figures: those are arrays over the points."""
        setting = self.setting
        for axis, path in self.figures:
            numbers = np.array(axis.values, dtype=np.float64)[chosen.chosen[axis.name]]
            setting = with_value(setting, path, scaled(value_at(setting, path), numbers, axis))
        return replace(self.question.job, cluster=setting.cluster)


def scaled(base: Any, value: Any, axis: Axis) -> Any:
    """What an axis puts in the place of `base`: its value, or so many times `base`."""
    if not axis.ratio:
        return value
    if isinstance(base, Mapping):
        return {key: scaled(each, value, axis) for key, each in base.items()}
    if isinstance(base, int) and not isinstance(base, bool):
        if not float(base * value).is_integer():
            raise BadInput(f"axis {axis.field}", f"x{value:g}", f"of {base} is no whole number", "change it")
        return int(base * value)
    return base * value


def is_figure(sweep: Sweep, axis: Axis) -> bool:
    """Whether an axis changes a rate, capacity or price of the cluster, and nothing of its structure."""
    path = resolve_field(sweep.setting, axis.field)
    if path[0] != "cluster" or path in LOADERS:
        return False
    base = value_at(sweep.setting, path)
    parts = base.values() if isinstance(base, Mapping) else [base]
    return all(isinstance(each, float) for each in parts)


def build_ready(sweep: Sweep, chosen: Mapping[str, int]) -> Ready:
    """What points share whose axes of structure have these values; whole things are put in before parts."""
    setting, figures = sweep.setting, []
    structure = [axis for axis in sweep.axes if axis.name in chosen]
    for axis in sorted(structure, key=lambda axis: axis.field.count(".")):
        path = resolve_field(setting, axis.field)
        value = axis.values[chosen[axis.name]]
        setting = with_value(
            setting, path, scaled(value_at(setting, path) if axis.ratio else None, value, axis)
        )
    for axis in sweep.axes:
        if axis.name not in chosen:
            figures.append((axis, resolve_field(setting, axis.field)))
    question, interval = build_question(setting, sweep.objective)
    return Ready(question=question, setting=setting, interval=interval, figures=tuple(figures))


def build_question(setting: Setting, objective: str) -> tuple[Question, Interval]:
    """The question that a setting asks, and how far off its answer can be."""
    cluster, graph = setting.cluster, build_graph(setting.model)
    _ = cluster.levels  # its network must be able to join all devices
    if TABLES in graph.sizes:
        raise BadInput("model", graph.name, "has tables instead of layers", "use trainwright plan for it")
    constants = load_constants()
    source = build_source(setting.cost, "", cluster, constants, setting.stack)
    stated = (setting.optimizer, setting.grad_dtype)
    check_optimizer(source.stack.capability, *stated, ("optimizer", "grad_dtype"), "stack")
    stack = replace(with_optimizer(source.stack, *stated), stated_imbalance=setting.expert_imbalance)
    if setting.expert_imbalance:
        check_imbalance(setting.expert_imbalance, graph, "expert_imbalance")
    source = replace(source, stack=stack)
    seq = setting.seq or setting.model.max_seq
    batch = setting.batch or usual_batch(graph, cluster, seq)
    check_batch(batch, "sweep batch")
    job = Job(
        graph=graph,
        cluster=cluster,
        stack=source.stack,
        efficiency=source.efficiency,
        seq=seq,
        global_batch=batch,
    )
    fixed = {**able_knobs(source.stack), "precision": _precisions(setting), **setting.strategy}
    spread = constants.memory_spread(source.stack)
    question = Question(
        job=job, batches=(batch,), fixed=fixed, filled_share=spread.filled_share(setting.oom_risk),
        most={"vpp": source.stack.capability.most_vpp, **setting.most},
        objective=objective, top=1, dollars_per_kwh=setting.dollars_per_kwh,
    )  # fmt: skip
    return _at_target(question, setting), source.interval


def _at_target(question: Question, setting: Setting) -> Question:
    """The question at the best batch of the target in tokens, unless the batch is stated in sequences."""
    if setting.batch or not setting.batch_tokens:
        return question
    asked = f"{setting.batch_tokens} tokens"
    target = build_target(
        setting.batch_tokens, question.job.seq, setting.batch_tolerance, asked, "sweep batch_tokens"
    )
    batch = choose_batch(question, target)
    return replace(question, job=replace(question.job, global_batch=batch), batches=(batch,))


def _precisions(setting: Setting) -> tuple[int, ...]:
    device = setting.cluster.device
    name = setting.precision or device.usual_precision
    for each in (name, *(PRECISIONS[code] for code in setting.strategy.get("precision", ()))):
        check_precision(each, device, "precision")
    return (PRECISIONS.index(name),)


def structure_axes(sweep: Sweep) -> tuple[Axis, ...]:
    """The axes that change more than figures."""
    return tuple(axis for axis in sweep.axes if not is_figure(sweep, axis))


def grouped(sweep: Sweep, chosen: Points, structure: Sequence[Axis]) -> list[tuple[dict[str, int], Ints]]:
    """Points that share their structure: the values of those axes, and which points, in order."""
    code = np.zeros(len(chosen), dtype=np.int64)
    for axis in structure:
        code = code * len(axis) + chosen.chosen[axis.name]
    order = np.argsort(code, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(code[order]) != 0]) if len(code) else np.zeros(0, dtype=int)
    return [
        ({axis.name: int(chosen.chosen[axis.name][rows[0]]) for axis in structure}, rows)
        for rows in np.split(order, starts[1:])
        if len(rows)
    ]
