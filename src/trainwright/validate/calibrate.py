"""The fit of the constants of time to measured runs: few, physical, each held to its parent.

Those of links are not among them: `collective_fit` has them from collectives measured alone. Devices start
from published kernels (`kernel_rates`); how stacks, families, precisions and releases follow from each other
is `hierarchy`.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from trainwright.cost.constants import Stack
from trainwright.cost.load import PRIOR, Constants
from trainwright.plan.strategy import PRECISIONS
from trainwright.stack.load import kin_of
from trainwright.validate.dataset import Dataset, measured, predict, stack_name
from trainwright.validate.forked_map import forked_map
from trainwright.validate.hierarchy import (
    EFFICIENCY_SPREAD,
    OPTIONAL_SPREAD,
    STACK_SPREAD,
    Hierarchy,
    build_hierarchy,
    nudged,
)
from trainwright.validate.problem import Array, Mask, groups_of, row_weights, sources, unit_of
from trainwright.validate.robust_fit import SCALE, Linear, Say, fit, solve_linear

# What a group must have for its times to depend on a field: several ranks of an axis, or a precision.
_NEEDS_AXIS = {
    "tp_overlap": "tp", "tp_forward_overlap": "tp", "cp_overlap": "cp", "send_s": "pp", "pp_overlap": "pp",
    "dp_overlap": "dp", "zero_overlap": "dp",
}  # fmt: skip
_NEEDS_PRECISION = {
    "cast_bytes": [PRECISIONS.index("fp8"), PRECISIONS.index("fp4")],
    "fp8_ratio": [PRECISIONS.index("fp8"), PRECISIONS.index("fp4")], "fp4_ratio": [PRECISIONS.index("fp4")],
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeModel:
    """The step times of some rows as a function of the positions of a hierarchy."""

    dataset: Dataset
    hierarchy: Hierarchy
    groups: tuple[int, ...]
    target: Array
    side: Array
    weights: Array
    scale: float = SCALE

    def logs(self, x: Array) -> Array:
        """Logarithms of predicted step times."""
        return self._logs(self.hierarchy.constants(x))

    def jacobian(self, x: Array, logs: Array) -> Array:
        """From one prediction per field: a row depends on that field of one stack or device only."""
        constants = self.hierarchy.constants(x)
        fields = (*EFFICIENCY_SPREAD, *STACK_SPREAD, *OPTIONAL_SPREAD)
        slopes = forked_map(partial(self._slope, constants, logs), fields)
        return self.hierarchy.jacobian(dict(zip(fields, slopes, strict=True)))

    def _slope(self, constants: Constants, logs: Array, field: str) -> Array:
        moved, steps = nudged(constants, field)
        rows = self.hierarchy.rows
        owners = rows.units if field in EFFICIENCY_SPREAD else rows.stacks
        step = np.array([steps.get(owner, np.nan) for owner in owners])
        groups = [index for index in self.groups if self._matters(index, constants, field)]
        slope = (self._logs(moved, groups) - logs) / step
        return np.where(np.isfinite(slope), slope, 0.0)

    def _matters(self, index: int, constants: Constants, field: str) -> bool:
        """Whether the times of a group can depend on a field at all; if not, it need not be predicted."""
        group = self.dataset.groups[index]
        if field in OPTIONAL_SPREAD:
            plain = getattr(Stack(name=""), field)
            return bool(getattr(constants.stack(group.stack), field) != plain)
        if field in ("ep_overlap_share", "expert_pace"):
            return "experts" in group.case.graph.sizes
        if field in _NEEDS_AXIS:
            return bool((getattr(group.candidates, _NEEDS_AXIS[field]) > 1).any())
        if field in _NEEDS_PRECISION:
            return bool(np.isin(group.candidates.precision, _NEEDS_PRECISION[field]).any())
        return True

    def _logs(self, constants: Constants, groups: Sequence[int] | None = None) -> Array:
        used = self.groups if groups is None else groups
        found = predict(self.dataset, constants.stack, constants.efficiency, used)
        return np.log(found.step_s)


def timed(dataset: Dataset) -> Mask:
    """Rows with a measured step time."""
    return np.isfinite(measured(dataset)["step_s"])


def time_model(dataset: Dataset, prior: Constants, rows: Mask) -> TimeModel:
    """The model of the step times of some rows."""
    return TimeModel(
        dataset=dataset,
        hierarchy=build_hierarchy(dataset, prior, stated_fields(), rows),
        groups=groups_of(dataset, rows),
        target=np.log(measured(dataset)["step_s"]),
        side=np.zeros(len(rows)),
        weights=row_weights(dataset, rows),
    )


def stated_fields() -> Mapping[str, frozenset[str]]:
    """The constants that the prior states of each stack: facts of its software, which it does not inherit."""
    tables = tomllib.loads(PRIOR.read_text(encoding="utf-8"))["stack"]
    return {name: frozenset(table) for name, table in tables.items()}


def with_forks(constants: Constants, dataset: Dataset) -> Constants:
    """The constants with an entry for software in the rows that has none: its kin's."""
    names = {stack_name(case) for case in dataset.cases if case} - set(constants.stacks)
    stacks = {
        name: replace(constants.stacks[kin], name=name)
        for name in sorted(names)
        if (kin := kin_of(name)) in constants.stacks
    }
    return replace(constants, stacks={**constants.stacks, **stacks})


def fit_times(
    dataset: Dataset, prior: Constants, rounds: int, say: Say, start: Array | None = None
) -> tuple[TimeModel, Linear]:
    """The positions that predict all measured times best."""
    model = time_model(dataset, prior, timed(dataset))
    say(f"{len(model.hierarchy.moves)} numbers of time, {int((model.weights > 0).sum())} runs")
    first = np.zeros(len(model.hierarchy.moves)) if start is None else start
    return model, fit(model, first, rounds, say)


def with_runs(constants: Constants, dataset: Dataset, rows: Mask) -> Constants:
    """The constants with the numbers of runs that devices and stacks rest on."""
    runs: dict[tuple[str, str], int] = {}
    for group in dataset.groups:
        count = int(rows[list(group.indices)].sum())
        for key in (("efficiency", unit_of(constants, group.case.cluster.device)), ("stack", group.stack)):
            runs[key] = runs.get(key, 0) + count
    stacks = {
        name: replace(each, runs=0 if name == "generic" else runs.get(("stack", name), 0))
        for name, each in constants.stacks.items()
    }
    efficiencies = {
        unit: replace(e, runs=runs.get(("efficiency", unit), 0)) for unit, e in constants.efficiencies.items()
    }
    return replace(constants, efficiencies=efficiencies, stacks=stacks)


def leave_out(whole: TimeModel, near: Linear, source: str) -> Constants:
    """Constants of time fitted without one source: from the linear model of the whole fit, then once more.

    Numbers that only that source's rows moved return to their parents'.
    """
    others = sources(whole.dataset) != source
    rows = timed(whole.dataset) & others
    model = replace(whole, weights=row_weights(whole.dataset, rows), groups=groups_of(whole.dataset, rows))
    x = solve_linear(model, near, near.x)
    corrected = Linear(x=x, logs=model.logs(x), jacobian=near.jacobian)
    x = solve_linear(model, corrected, x, reach=1.0)
    return with_runs(model.hierarchy.constants(x), whole.dataset, rows)
