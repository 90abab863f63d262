"""A predicted and a measured step, side by side."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trainwright.errors import BadInput
from trainwright.program.table import COMMUNICATION, COMPUTE, COPY, Floats
from trainwright.report.saved_trace import SavedTrace
from trainwright.report.trace import UNITS
from trainwright.simulate.breakdown import BUBBLE, breakdown
from trainwright.simulate.timeline import COMMUNICATION_CAUSES, Timeline

_LAYER = re.compile(r"\.\d+(?=/|\s)")  # the number of a layer in the label of a task
_MOST = 12  # rows of tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The seconds of one thing, predicted and measured."""

    name: str
    predicted_s: float
    measured_s: float

    @property
    def difference_s(self) -> float:
        """How much longer it was than predicted."""
        return self.measured_s - self.predicted_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two timelines of one plan.

    `causes` are what each cause adds to the step on the mean device: they add up to `step`, so that their
    differences are the difference of the step. `lanes` is how long each device computed, communicated and
    copied, and `tasks` how long those of one name took on the mean device, those of all layers together; the
    largest differences first.
    """

    step: Pair
    causes: tuple[Pair, ...]
    lanes: Mapping[int, tuple[Pair, ...]]  # by device
    tasks: tuple[Pair, ...]


def check_same(predicted: SavedTrace, measured: SavedTrace) -> None:
    """Raise unless both are of one plan, of one model, on the same devices."""
    for key, what in (("model", "models"), ("plan_sha256", "plans"), ("seq", "lengths of sequences")):
        one, two = (each.about.get(key, "") for each in (predicted, measured))
        if not one or not two:
            raise BadInput("traces", key, "is missing in one of them", "write both with this version")
        if one != two:
            shown = "plan" if key == "plan_sha256" else key
            names = (each.about.get(shown, "") for each in (predicted, measured))
            raise BadInput(
                "traces", " and ".join(names), f"are of different {what}",
                "compare a step with the prediction of the same plan",
            )  # fmt: skip
    devices = [sorted(_devices(each.timeline)) for each in (predicted, measured)]
    if devices[0] != devices[1]:
        counts = " and ".join(str(len(each)) for each in devices)
        raise BadInput("traces", counts, "are of different devices", "record all processes of the run")


def compare(predicted: Timeline, measured: Timeline) -> Comparison:
    """What was predicted beside what was measured, by cause, by lane and by task.

    Where only some of the devices were measured, the prediction is that of these.
    """
    sides, both = (predicted, measured), sorted({*_devices(predicted)} & {*_devices(measured)})
    if not both:
        raise BadInput("traces", "devices", "none was predicted and measured", "compare steps of one plan")
    return Comparison(
        step=Pair(name="step", predicted_s=predicted.step_s, measured_s=measured.step_s),
        causes=_paired(*(_causes(each, both) for each in sides)),
        lanes={device: tuple(_lanes(predicted, measured, device)) for device in both},
        tasks=_paired(*(_tasks(each, both) for each in sides))[:_MOST],
    )


def _devices(timeline: Timeline) -> dict[int, int]:
    """The place of each device."""
    return {device: place for place, devices in enumerate(timeline.table.places) for device in devices}


def _shares(timeline: Timeline, devices: Sequence[int]) -> Floats:
    """The share of some devices that each place has."""
    counts = np.array([len({*each} & {*devices}) for each in timeline.table.places], float)
    return np.asarray(counts / counts.sum())


def _causes(timeline: Timeline, devices: Sequence[int]) -> dict[str, float]:
    shares = _shares(timeline, devices)
    # What is left of a step may be a rounding error; times are told to the nanosecond.
    found = {cause: round(float(each @ shares), 9) for cause, each in breakdown(timeline).time_s.items()}
    return {cause: seconds for cause, seconds in found.items() if seconds or cause == BUBBLE}


def _lanes(predicted: Timeline, measured: Timeline, device: int) -> Iterator[Pair]:
    both = zip(UNITS, _busy(predicted, device), _busy(measured, device), strict=True)
    for name, one, two in both:
        if one or two:
            yield Pair(name=name, predicted_s=one, measured_s=two)


def _busy(timeline: Timeline, device: int) -> Iterator[float]:
    """Of compute, communication and copies, how long they ran; wherever a prediction has them queue."""
    table, place = timeline.table, _devices(timeline)[device]
    here = table.unit_place[table.lane_unit[table.lane]] == place
    kinds = np.array([_kind(cause) for cause in table.causes], np.int32)[table.label]
    for kind in range(len(UNITS)):
        yield float((timeline.end_s - timeline.start_s)[here & (kinds == kind)].sum())


def _kind(cause: str) -> int:
    if cause == "offload":
        return COPY
    return COMMUNICATION if cause in COMMUNICATION_CAUSES else COMPUTE


def _tasks(timeline: Timeline, devices: Sequence[int]) -> dict[str, float]:
    """By name without the number of a layer, seconds on the mean device."""
    table = timeline.table
    place = table.unit_place[table.lane_unit[table.lane]]
    seconds = (timeline.end_s - timeline.start_s) * _shares(timeline, devices)[place]
    sums = np.bincount(table.label, seconds, minlength=len(table.labels))
    found: dict[str, float] = {}
    for label, total in zip(table.labels, sums.tolist(), strict=True):
        name = _LAYER.sub("", label)
        found[name] = found.get(name, 0.0) + total
    return found


def _paired(predicted: Mapping[str, float], measured: Mapping[str, float]) -> tuple[Pair, ...]:
    names: Sequence[str] = list(dict.fromkeys((*predicted, *measured)))
    pairs = [
        Pair(name=name, predicted_s=predicted.get(name, 0.0), measured_s=measured.get(name, 0.0))
        for name in names
    ]
    return tuple(sorted(pairs, key=lambda each: -abs(each.difference_s)))
