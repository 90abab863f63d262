"""The fit of the constants of fabrics to collectives that were measured alone: no training run is in it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from trainwright.cluster.load import load_device
from trainwright.cluster.types import Cluster, Network
from trainwright.cost.collective import (
    all_gather_s,
    all_reduce_s,
    all_to_all_s,
    reduce_scatter_s,
    send_s,
    span,
)
from trainwright.cost.constants import Efficiency, Stack
from trainwright.cost.fabric import INNER, OUTER, Fabric
from trainwright.cost.network import level_links
from trainwright.validate.collective_rows import Measured
from trainwright.validate.problem import Array
from trainwright.validate.robust_fit import fit

Fabrics = Mapping[str, Fabric]
# How far the logarithm of a constant may move from its prior: one standard deviation. Hops are NCCL's own
# tuning, so they may move least.
SPREAD: Mapping[str, float] = {
    "share": 0.2, "reducing": 0.2, "start_s": 1.0, "latency_s": 1.0, "hop_s": 0.3,
}  # fmt: skip
_MOST_SHARE = 0.99
_SCALE = 0.1  # logarithms that are further off count linearly
_ROUNDS = 40
_COLLECTIVES = {
    "all_reduce": all_reduce_s,
    "all_gather": all_gather_s,
    "reduce_scatter": reduce_scatter_s,
    "all_to_all": all_to_all_s,
}
_LIKE_INNER = ("nvlink2", "nvlink3", "nvlink4", "nvlink5")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Measured collectives of one kind on one network, by their places in the table."""

    network: Network
    kind: str
    stride: int
    at: tuple[int, ...]
    members: Array
    size_bytes: Array
    time_s: Array

    @property
    def units(self) -> frozenset[str]:
        """The fabrics of its network."""
        return frozenset(level.fabric for level in self.network.levels)


def questions(rows: Sequence[Measured]) -> tuple[Question, ...]:
    """The rows grouped so that one call predicts many."""
    alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        alike[row.network.levels, row.kind, row.stride].append(index)
    return tuple(
        Question(
            network=rows[at[0]].network, kind=rows[at[0]].kind, stride=rows[at[0]].stride, at=tuple(at),
            members=np.array([float(rows[i].members) for i in at]),
            size_bytes=np.array([rows[i].size_bytes for i in at]),
            time_s=np.array([rows[i].time_s for i in at]),
        )
        for at in alike.values()
    )  # fmt: skip


def seconds(question: Question, fabrics: Fabrics) -> Array:
    """The predicted time of each collective of a question."""
    count = int(question.members.max()) * question.stride
    cluster = Cluster(
        name="measured", device=load_device("h100"), network=question.network, count=max(count, 1)
    )
    links = level_links(cluster, Efficiency(fabrics=fabrics), Stack(name="alone"))
    if question.kind == "send":
        return send_s(links, np.full(len(question.at), float(question.stride)), question.size_bytes)
    strides = np.full(len(question.at), float(question.stride))
    where = span(links, question.members, strides)
    return _COLLECTIVES[question.kind](links, where, question.size_bytes)


def predicted_s(rows: Sequence[Measured], fabrics: Fabrics) -> Array:
    """The predicted time of each row."""
    result = np.full(len(rows), np.nan)
    for question in questions(rows):
        result[list(question.at)] = seconds(question, fabrics)
    return result


def fit_fabrics(rows: Sequence[Measured], prior: Fabrics) -> Fabrics:
    """The fabrics that some rows crossed, fitted to them under the priors, and defaults for all others."""
    counts = _counts(rows)
    crossed = {unit: each for unit, each in prior.items() if unit in counts}
    asked = questions(rows)
    times = np.full(len(rows), np.nan)
    for question in asked:
        times[list(question.at)] = question.time_s
    problem = _Problem(
        rows=tuple(rows), prior=crossed, asked=asked, weights=_weights(rows), target=np.log(times),
        side=np.zeros(len(rows)),
    )  # fmt: skip
    start = np.zeros(len(problem.numbers))
    fitted = problem.fabrics(fit(problem, start, _ROUNDS, lambda text: None).x)
    return with_defaults({unit: replace(each, rows=counts[unit]) for unit, each in fitted.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Problem:
    """Times to be predicted, and the logarithms that may move; positions are in spreads from the prior."""

    rows: tuple[Measured, ...]
    prior: Fabrics
    asked: tuple[Question, ...]
    weights: Array
    target: Array
    side: Array
    scale: float = _SCALE

    @property
    def numbers(self) -> tuple[tuple[str, str], ...]:
        return tuple((unit, field) for unit in self.prior for field in SPREAD)

    def fabrics(self, x: Array) -> Fabrics:
        """The constants at a position."""
        changes: dict[str, dict[str, float]] = defaultdict(dict)
        for (unit, field), position in zip(self.numbers, x, strict=True):
            value = getattr(self.prior[unit], field) * float(np.exp(SPREAD[field] * position))
            changes[unit][field] = min(value, _MOST_SHARE) if field == "share" else value
        return {
            unit: replace(each, **changes[unit])  # type: ignore[arg-type]
            for unit, each in self.prior.items()
        }

    def logs(self, x: Array, unit: str = "") -> Array:
        """Logarithms of predicted time; with a unit, of rows whose network has it, else not a number."""
        fabrics, result = with_defaults(self.fabrics(x)), np.full(len(self.rows), np.nan)
        for question in self.asked:
            if not unit or unit in question.units:
                result[list(question.at)] = np.log(seconds(question, fabrics))
        return result

    def jacobian(self, x: Array, logs: Array, delta: float = 0.02) -> Array:
        """How each row moves with each number."""
        columns = []
        for index, (unit, _) in enumerate(self.numbers):
            moved = x.copy()
            moved[index] += delta
            change = (self.logs(moved, unit) - logs) / delta
            columns.append(np.where(np.isfinite(change), change, 0.0))
        return np.stack(columns, axis=1)


def with_defaults(fabrics: Fabrics) -> Fabrics:
    """The fabrics with what stands for unmeasured ones: the median of NVLinks inside, RDMA outside."""
    known = [fabrics[name] for name in _LIKE_INNER if name in fabrics] or [Fabric()]
    inner = Fabric(**{name: median(getattr(each, name) for each in known) for name in SPREAD})
    outer = replace(fabrics["rdma"], rows=0) if "rdma" in fabrics else inner
    return {INNER: inner, OUTER: outer, **{n: f for n, f in fabrics.items() if n not in (INNER, OUTER)}}


def _counts(rows: Iterable[Measured]) -> dict[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for row in rows:
        counts[row.fabric] += 1
    return dict(counts)


def _weights(rows: Sequence[Measured]) -> Array:
    """Weights that let each source count about alike: n^-0.35 per row, of a source and fabric."""
    sizes: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        sizes[row.source, row.fabric] += 1
    return np.array([sizes[row.source, row.fabric] ** -0.35 for row in rows])


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Fitted fabrics, the collectives that they rest on, and what is predicted for each: in and out."""

    fabrics: Fabrics
    rows: tuple[Measured, ...]
    inside_s: Array
    outside_s: Array  # by fabrics fitted without the row's source


def judge_fabrics(rows: Sequence[Measured], prior: Fabrics) -> Judged:
    """The fabrics fitted to the rows, and judged on sources left out."""
    fabrics = fit_fabrics(rows, prior)
    return Judged(
        fabrics=fabrics, rows=tuple(rows), inside_s=predicted_s(rows, fabrics),
        outside_s=leave_one_source_out(rows, prior),
    )  # fmt: skip


def leave_one_source_out(rows: Sequence[Measured], prior: Fabrics) -> Array:
    """Each row's time predicted by constants that were fitted without its source."""
    result = np.full(len(rows), np.nan)
    for source in sorted({row.source for row in rows}):
        others = [row for row in rows if row.source != source]
        own = [index for index, row in enumerate(rows) if row.source == source]
        result[own] = predicted_s([rows[index] for index in own], fit_fabrics(others, prior))
    return result
