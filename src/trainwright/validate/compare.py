"""Predictions beside measurements: errors by source, hardware and software."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.load import Constants, Interval, rests_on
from trainwright.validate.dataset import Dataset, Predictions, failed, measured, ran, stack_name
from trainwright.validate.power import Power

Array = NDArray[np.float64]
ADDED = (
    "predicted_step_time_s", "predicted_low_s", "predicted_high_s", "predicted_memory_gib", "fits",
    "predicted_device_w", "predicted_tokens_per_joule", "remarks", "error",
)  # fmt: skip
BY = ("source", "hardware", "framework")


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """How far predictions are off in one group of rows; not a number where nothing was measured."""

    name: str
    rows: int
    timed: int
    median: float
    mean: float
    bias: float  # median of predicted over measured, minus one
    inside: float  # share of measurements inside the predicted range
    memory_median: float
    fits_right: float  # share of rows whose outcome (ran, or ran out of memory) is predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranges:
    """The range of each row's prediction, as factors of it."""

    low: Array
    high: Array


def ranges(dataset: Dataset, constants: Constants, basis: Sequence[str] | None = None) -> Ranges:
    """The range of each row's prediction; not a number where a row could not be read.

    `basis` says of each row what is known of it, where that is not what the constants rest on.
    """
    each = []
    for index, case in enumerate(dataset.cases):
        if case is None:
            each.append(Interval(low=np.nan, high=np.nan))
            continue
        stack = constants.stack(stack_name(case))
        known = basis[index] if basis else rests_on(constants.efficiency(case.cluster.device), stack)
        each.append(constants.interval_of(known, stack))
    return Ranges(low=np.array([one.low for one in each]), high=np.array([one.high for one in each]))


def widened(within: Ranges, doubt: Array) -> Ranges:
    """Ranges that are wider on either side by the factors of doubtful rows."""
    return Ranges(low=within.low / doubt, high=within.high * doubt)


def _remarks(dataset: Dataset, index: int) -> tuple[str, ...]:
    """What is doubtful about a row."""
    case = dataset.cases[index]
    if case is None:
        return ()
    return case.remarks if "precision" in case.fixed else (*case.remarks, "the precision is not stated")


def doubtful(dataset: Dataset) -> Mapping[str, int]:
    """What is doubtful about rows, and how many share it."""
    return _counted(each for index in range(len(dataset.rows)) for each in _remarks(dataset, index))


def predicted_rows(
    dataset: Dataset, predictions: Predictions, within: Ranges, power: Power
) -> list[dict[str, object]]:
    """The rows with what was predicted for them; a row that could not be read says why."""
    result: list[dict[str, object]] = []
    for index, row in enumerate(dataset.rows):
        own: dict[str, object] = {name: value for name, value in row.items() if name is not None}
        step = float(predictions.step_s[index])
        if dataset.reasons[index] or not np.isfinite(step):
            blank = dict.fromkeys(ADDED, "")
            result.append(own | blank | {"error": dataset.reasons[index] or "no strategy could be evaluated"})
            continue
        result.append(
            own
            | {
                "predicted_step_time_s": f"{step:.6g}",
                "predicted_low_s": f"{step * within.low[index]:.6g}",
                "predicted_high_s": f"{step * within.high[index]:.6g}",
                "predicted_memory_gib": f"{predictions.memory_bytes[index] / 2**30:.5g}",
                "fits": int(predictions.fits[index]),
                "predicted_device_w": f"{power.device_w[index]:.4g}",
                "predicted_tokens_per_joule": f"{power.tokens_per_joule[index]:.4g}",
                "remarks": "; ".join(_remarks(dataset, index)),
                "error": "",
            }
        )
    return result


def errors_by(dataset: Dataset, predictions: Predictions, within: Ranges, column: str) -> tuple[Errors, ...]:
    """Errors of the rows that share a value of a column, and of all."""
    groups: dict[str, list[int]] = defaultdict(list)
    for index, row in enumerate(dataset.rows):
        groups[(row.get(column) or "").strip() or "not stated"].append(index)
    listed = [
        _errors(name, indices, dataset, predictions, within) for name, indices in sorted(groups.items())
    ]
    return (*listed, _errors("all", range(len(dataset.rows)), dataset, predictions, within))


def _errors(
    name: str, indices: Sequence[int], dataset: Dataset, predictions: Predictions, within: Ranges
) -> Errors:
    at = np.array(indices)
    truth = measured(dataset)
    ratio = (predictions.step_s / truth["step_s"])[at]
    timed = np.isfinite(ratio)
    ratio = ratio[timed]
    truth_ratio = 1.0 / ratio
    inside = (within.low[at][timed] <= truth_ratio) & (truth_ratio <= within.high[at][timed])
    memory = np.abs(predictions.memory_bytes / truth["memory_bytes"] - 1.0)[at]
    fitted, known = _outcomes(dataset)
    read = known[at] & np.isfinite(predictions.step_s[at])
    right = (predictions.fits == fitted)[at][read]
    return Errors(
        name=name,
        rows=len(at),
        timed=int(timed.sum()),
        median=_of(np.median, np.abs(ratio - 1.0)),
        mean=_of(np.mean, np.abs(ratio - 1.0)),
        bias=_of(np.median, ratio) - 1.0,
        inside=_of(np.mean, inside.astype(float)),
        memory_median=_of(np.median, memory[np.isfinite(memory)]),
        fits_right=_of(np.mean, right.astype(float)),
    )


def _of(function: object, values: Array) -> float:
    return float(function(values)) if len(values) else float("nan")  # type: ignore[operator]


def _outcomes(dataset: Dataset) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which rows ran, and of which that is known: something was measured, or the table tells the outcome."""
    well, badly = ran(dataset), failed(dataset)
    return well & ~badly, well | badly


def render_errors(errors: Errors) -> Sequence[str]:
    """One row of a table of errors."""
    shares = (errors.median, errors.mean, errors.bias, errors.inside, errors.memory_median, errors.fits_right)
    cells = ("" if np.isnan(share) else f"{share:.1%}" for share in shares)
    return (errors.name, str(errors.rows), str(errors.timed), *cells)


def unreadable(dataset: Dataset) -> Mapping[str, int]:
    """Reasons why rows could not be predicted, and how many share each."""
    return _counted(reason for reason in dataset.reasons if reason)


def _counted(texts: Iterable[str]) -> Mapping[str, int]:
    return dict(Counter(texts).most_common())
