"""The level of predictions, corrected by measured runs and shrunk by how much evidence these carry.

The logarithm of measured over predicted is the sum of three independent parts, each normal around zero: a
level that all runs of a stack on a family of devices share, a part that the runs of one model share, and the
scatter of single runs. `VarianceParts` has their variances. What measured runs say of another one is then its
best linear unbiased prediction. With n runs that share all conditions with the predicted one, it is

    factor = exp(n t / (n t + s) * mean)          t = level + model, s = run

of the mean logarithm, and the variance of what is left is t s / (n t + s) + s, against t + s without runs.
Where a run and the predicted one differ in device, precision or release, they share `WEAKER` of the variance
for each of the three; where their models differ, they share only the level; where their stacks or families of
devices differ, nothing.

Both level and scatter have heavier tails than a normal distribution: they are weighed as Student's t with
`FREEDOM` degrees of freedom. One run that is further from the level than scatter explains counts less, since
it may state something else than it ran. A run that another one of the same conditions confirms counts fully,
and where confirmed runs are far from the prediction, the level's variance grows with their distance.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log, sqrt

import numpy as np
from numpy.typing import NDArray

from trainwright.cluster.types import Device
from trainwright.cost.load import Interval
from trainwright.cost.memory_risk import MemorySpread
from trainwright.model.graph import Graph, is_layer, parameters

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class VarianceParts:
    """Variances of the logarithm of measured over predicted, by what shares them."""

    level: float  # runs of a source, a stack, a device and a precision
    model: float  # those of them that train the same model
    run: float  # nothing: the scatter of single runs

    @property
    def total(self) -> float:
        """The variance of a single run before anything is measured."""
        return self.level + self.model + self.run


# Estimated from residuals of the fitted constants, as `benchmarks/anchoring.py` prints them (November 2026):
# products of the logarithms of two runs of a source, limited to 0.5, averaged over pairs, then over sources.
# Pairs of one stack, device, precision and release share level + model if they train one model, else level.
# `run` is half the mean squared difference of pairs of one model. From catalog/published.csv, 15 sources
# whose level is fitted: that of a source never seen is larger (docs/anchoring.md).
KNOWN = VarianceParts(level=0.0009, model=0.0049, run=0.0140)
# A stack or a device without runs in the calibration has a wider level: 4 such sources of runs_v2.csv.
UNKNOWN = VarianceParts(level=0.0436, model=0.0049, run=0.0140)
# Peak memory: 8 sources of runs_v2.csv, of which pairs of two models share no less than pairs of one.
MEMORY = VarianceParts(level=0.0075, model=0.0, run=0.0214)
# What pairs share of step time that differ in one of device, precision and release: 0.31 of 3 sources of
# published.csv, 0.33 of 9 of runs_v2.csv. Of memory it is taken to be the same; 4 sources say more.
WEAKER = 1.0 / 3.0
FREEDOM = 4.0
_SAME_SIZE = 0.02  # relative difference of parameters up to which two models of equal depth are one
_ROUNDS = 50
_CONFIRMS = 1.0  # deviations of scatter within which two runs of the same conditions confirm each other

PRECISION_CLASSES: Mapping[str, str] = {
    "bf16": "16-bit", "fp16": "16-bit", "fp8": "fp8", "fp4": "fp4", "fp32": "fp32",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConditions:
    """What decides how much two runs tell of each other."""

    stack: str
    device: str
    family: str
    precision: str  # one of the classes
    layers: int
    parameters: int
    release: str = ""  # "": not stated


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorRun:
    """A measured run and what was predicted for it; a figure that was not measured is None."""

    id: str
    model: str
    conditions: RunConditions
    step_s: float | None = None
    predicted_step_s: float | None = None
    memory_bytes: float | None = None
    predicted_memory_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """Measured runs that correct predictions, and where they are from."""

    name: str  # of the file
    runs: tuple[AnchorRun, ...]
    notes: tuple[str, ...] = ()  # on rows that were not used


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelCorrection:
    """What runs say of one quantity of a job: a factor, and the width that its range keeps (0 to 1)."""

    runs: int  # that carry evidence
    same_model: int
    factor: float
    width: float

    def narrow(self, interval: Interval) -> Interval:
        """The range as factors of the corrected prediction: its width in logarithms, times the one kept."""
        return Interval(low=interval.low**self.width, high=interval.high**self.width)


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchoring:
    """The corrections of a job; None where no run carries evidence."""

    file: str
    file_runs: int
    stack: str
    precision: str
    step_time: LevelCorrection | None
    memory: LevelCorrection | None


def release_key(text: str) -> str:
    """A release as it is compared: `v0.2.2` and `0.2.2` are one."""
    return text.strip().lower().removeprefix("v")


def conditions_of(
    graph: Graph, device: Device, stack: str, precision: str, release: str = ""
) -> RunConditions:
    """The conditions of a model on a device under a stack (`torchtitan@0.2.2` states its release)."""
    name, _, own = stack.partition("@")
    return RunConditions(
        stack=name, device=device.name, family=device.family, precision=PRECISION_CLASSES[precision],
        layers=sum(each.count for each in graph.segments if is_layer(each.block)),
        parameters=round(parameters(graph)), release=release_key(release or own),
    )  # fmt: skip


def anchor_job(anchor: Anchor, job: RunConditions, *, known: bool) -> Anchoring:
    """What the runs of an anchor say of a job; `known` if its range rests on runs of device and stack."""
    times = [(each, _log(each.step_s, each.predicted_step_s)) for each in anchor.runs]
    peaks = [(each, _log(each.memory_bytes, each.predicted_memory_bytes)) for each in anchor.runs]
    return Anchoring(
        file=anchor.name, file_runs=len(anchor.runs), stack=job.stack, precision=job.precision,
        step_time=correct_level(job, _stated(times), KNOWN if known else UNKNOWN),
        memory=correct_level(job, _stated(peaks), MEMORY),
    )  # fmt: skip


def _log(measured: float | None, predicted: float | None) -> float | None:
    return log(measured / predicted) if measured and predicted else None


def _stated(
    figures: Sequence[tuple[AnchorRun, float | None]],
) -> list[tuple[RunConditions, float]]:
    return [(run.conditions, value) for run, value in figures if value is not None]


def correct_level(
    job: RunConditions, runs: Sequence[tuple[RunConditions, float]], parts: VarianceParts
) -> LevelCorrection | None:
    """The correction of a job by runs and their logarithms of measured over predicted; None without evidence.

    A job that states no release takes runs of every release alike.
    """
    if not job.release:
        runs = [(replace(each, release=""), value) for each, value in runs]
    used = [(each, value) for each, value in runs if shared_variance(job, each, parts) > 0.0]
    if not used:
        return None
    kinds, values = [each for each, _ in used], np.array([value for _, value in used])
    apart = _nearest_alike(kinds, values)
    wider = _wider_level(parts, values[apart < _CONFIRMS * sqrt(parts.run)])
    own = np.array([shared_variance(job, each, wider) for each in kinds])
    between = np.array([[shared_variance(a, b, wider) for b in kinds] for a in kinds])
    scatter = _scatter(between, values, apart, parts.run)
    gain = np.linalg.solve(between + np.diag(scatter), own)
    left = wider.total - float(gain @ own)
    return LevelCorrection(
        runs=len(used),
        same_model=sum(is_same_model(job, each) for each in kinds),
        factor=exp(float(gain @ values)),
        width=sqrt(min(max(left, parts.run) / parts.total, 1.0)),
    )


def _nearest_alike(kinds: Sequence[RunConditions], values: Array) -> Array:
    """How far each run is from the nearest one of the same conditions; infinite without one.

    The difference of two runs has twice the variance of one, so it is divided by the root of two.
    """
    apart = np.full(len(values), np.inf)
    for one, kind in enumerate(kinds):
        for other, second in enumerate(kinds):
            is_alike = replace(second, parameters=kind.parameters) == kind and is_same_model(kind, second)
            if one != other and is_alike:
                apart[one] = min(apart[one], abs(values[one] - values[other]) / sqrt(2.0))
    return apart


def _wider_level(parts: VarianceParts, confirmed: Array) -> VarianceParts:
    """The parts with a level that explains where runs lie that confirm each other."""
    if not len(confirmed):
        return parts
    distance = float(np.median(confirmed)) ** 2 / (parts.level + parts.model)
    times = max((FREEDOM + distance) / (FREEDOM + 1.0), 1.0)
    return replace(parts, level=times * parts.level, model=times * parts.model)


def _scatter(between: Array, values: Array, apart: Array, run: float) -> Array:
    """The variance of each run's scatter, larger for those far from the level and from runs like them."""
    scatter = np.full(len(values), run)
    for _ in range(_ROUNDS):
        level = between @ np.linalg.solve(between + np.diag(scatter), values)
        distance = np.minimum(np.abs(values - level), apart)
        weights = np.minimum((FREEDOM + 1.0) / (FREEDOM + distance**2 / run), 1.0)
        if np.allclose(run / weights, scatter, rtol=1e-9):
            break
        scatter = run / weights
    return scatter


def shared_variance(one: RunConditions, other: RunConditions, parts: VarianceParts) -> float:
    """The variance that two runs share: all of their level, or less the more they differ."""
    if (one.stack, one.family) != (other.stack, other.family):
        return 0.0
    differ = (one.device != other.device, one.precision != other.precision, one.release != other.release)
    shared = parts.level + (parts.model if is_same_model(one, other) else 0.0)
    return float(shared * WEAKER ** sum(differ))


def is_same_model(one: RunConditions, other: RunConditions) -> bool:
    """Whether two runs train models of equal depth and, but for small parts, of equal size."""
    larger = max(one.parameters, other.parameters)
    return one.layers == other.layers and abs(one.parameters - other.parameters) <= _SAME_SIZE * larger


def narrow_memory(correction: LevelCorrection | None, spread: MemorySpread) -> MemorySpread:
    """The spread of measured over predicted peaks, moved by the factor and narrowed."""
    if correction is None:
        return spread
    return replace(
        spread,
        mean=log(correction.factor) + correction.width * spread.mean,
        deviation=correction.width * spread.deviation,
        rows=spread.rows + correction.runs,
    )
