"""Runs projected from a single one of them: its time tells how long the software needs for an operator."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.load import Constants
from trainwright.validate.dataset import Dataset, measured, predict

Array = NDArray[np.float64]
_HOST_S = np.geomspace(1e-6, 1e-3, 25)  # of an operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Projected:
    """What one baseline row tells, and how far off all other rows are that are predicted with it."""

    row: int
    operator_s: float
    errors: Array  # of the other rows

    @property
    def median(self) -> float:
        """The middle error."""
        return float(np.median(self.errors))


def project_rows(dataset: Dataset, constants: Constants, stack: str) -> tuple[Projected, ...]:
    """From each row that its host limits (the smallest width and microbatch), all others.

    Of the stack, the host time of an operator is what the baseline's step time makes it; all else are
    constants that no run was fitted to. Rows whose time no host time explains are no baselines.
    """
    steps = np.array([_steps(dataset, constants, stack, each) for each in _HOST_S])
    known = measured(dataset)["step_s"]
    good = np.flatnonzero(np.isfinite(steps).all(axis=0) & np.isfinite(known))
    found = []
    for row in good[_limited(dataset, good)].tolist():
        low, high = steps[0, row], steps[-1, row]
        if low <= known[row] <= high:
            operator_s = _between(known[row], steps[:, row], _HOST_S)
            others = good[good != row]
            predicted = np.array([_between(operator_s, _HOST_S, steps[:, each]) for each in others])
            errors = np.abs(predicted / known[others] - 1.0)
            found.append(Projected(row=row, operator_s=operator_s, errors=errors))
    return tuple(found)


def _steps(dataset: Dataset, constants: Constants, stack: str, operator_s: float) -> Array:
    changed = replace(constants.stack(stack), op_s=operator_s)
    other = replace(constants, stacks={**constants.stacks, stack: changed})
    return predict(dataset, other.stack, other.efficiency).step_s


def _limited(dataset: Dataset, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    widths = np.array([int(dataset.rows[row]["hidden"]) for row in rows])
    batches = np.array([int(dataset.rows[row]["micro_batch"]) for row in rows])
    alone = np.array([dataset.rows[row]["tp"] == dataset.rows[row]["pp"] == "1" for row in rows])
    return np.asarray((widths == widths.min()) & (batches == batches.min()) & alone)


def _between(value: float, at: Array, of: Array) -> float:
    return float(np.exp(np.interp(np.log(value), np.log(at), np.log(of))))
