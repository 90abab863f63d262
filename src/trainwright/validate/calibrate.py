"""The fit of the constants of time to measured runs: few, physical, held to priors.

Those of links are not among them: `collective_fit` has them from collectives measured alone.
"""

from collections.abc import Mapping
from dataclasses import replace
from statistics import median

import numpy as np

from trainwright.cost.constants import Efficiency, Stack
from trainwright.cost.load import Constants
from trainwright.validate.dataset import Dataset, Predictions, measured
from trainwright.validate.problem import (
    Array,
    Fit,
    Mask,
    Parameter,
    Problem,
    groups_of,
    parameters_of,
    row_weights,
    set_apart,
    solve_again,
    sources,
    unit_of,
    with_values,
)

# How far a constant may move from its prior: one standard deviation, of its logarithm where it is a rate,
# of itself where it is a share (overlaps).
EFFICIENCY_SPREAD: Mapping[str, float] = {
    "gemm": 0.10, "gemm_fp8": 0.15, "gemm_fp4": 0.2, "attention_forward": 0.2, "attention_backward": 0.2,
    "memory": 0.1,
}  # fmt: skip
STACK_SPREAD: Mapping[str, float] = {
    "pace": 0.15, "traffic": 0.5, "send_s": 1.0, "tp_forward_overlap": 0.3, "op_s": 1.0, "step_s": 1.0,
    "tp_overlap": 0.3, "dp_overlap": 0.3, "zero_overlap": 0.3, "pp_overlap": 0.3, "ep_overlap_share": 0.15,
    "cp_overlap": 0.3, "interference": 0.1,
}  # fmt: skip
# Fitted only where the prior sets them.
OPTIONAL_SPREAD: Mapping[str, float] = {
    "pipeline_tp_s": 0.7, "pipeline_stall_s": 0.7, "zero_layer_s": 0.7, "outer_extra_s": 0.7,
    "outer_share": 0.3, "route_launches": 0.3, "expert_launches": 0.3, "expert_bias_bytes": 0.5,
}  # fmt: skip
SHARES = frozenset(name for name in STACK_SPREAD if "overlap" in name) | {"interference"}


def _parameters(dataset: Dataset, prior: Constants, rows: Mask) -> tuple[Parameter, ...]:
    """Every constant that some of the chosen rows depend on."""
    used: dict[tuple[str, str], None] = {}
    for group in dataset.groups:
        if rows[list(group.indices)].any():
            used[("efficiency", unit_of(prior, group.case.cluster.device))] = None
            if group.stack in prior.stacks:
                used[("stack", group.stack)] = None
    result: list[Parameter] = []
    for kind, unit in used:
        holder = prior.efficiencies[unit] if kind == "efficiency" else prior.stacks[unit]
        result += parameters_of(kind, unit, holder, _spreads(holder), SHARES)
    return tuple(result)


def _spreads(holder: Efficiency | Stack) -> Mapping[str, float]:
    if isinstance(holder, Efficiency):
        return EFFICIENCY_SPREAD
    return {**STACK_SPREAD, **set_apart(holder, OPTIONAL_SPREAD)}


def timed(dataset: Dataset) -> Mask:
    """Rows with a measured step time."""
    return np.isfinite(measured(dataset)["step_s"])


def time_problem(dataset: Dataset, prior: Constants, rows: Mask) -> Problem:
    """The problem of predicting the step times of some rows."""
    return Problem(
        dataset=dataset, prior=prior, parameters=_parameters(dataset, prior, rows),
        groups=groups_of(dataset, rows), observe=_log_steps, target=np.log(measured(dataset)["step_s"]),
        side=np.zeros(len(rows)), weights=row_weights(dataset, rows),
    )  # fmt: skip


def _log_steps(predictions: Predictions, constants: Constants) -> Array:
    return np.log(predictions.step_s)


def with_generic(constants: Constants, dataset: Dataset, rows: Mask) -> Constants:
    """The constants with the generic stack at the median of the fitted ones, and their numbers of runs."""
    runs: dict[tuple[str, str], int] = {}
    for group in dataset.groups:
        count = int(rows[list(group.indices)].sum())
        for key in (("efficiency", unit_of(constants, group.case.cluster.device)), ("stack", group.stack)):
            runs[key] = runs.get(key, 0) + count
    fitted = [s for name, s in constants.stacks.items() if runs.get(("stack", name)) and name != "generic"]
    middle = {name: median(getattr(stack, name) for stack in fitted) for name in STACK_SPREAD}
    stacks = {name: replace(s, runs=runs.get(("stack", name), 0)) for name, s in constants.stacks.items()}
    stacks["generic"] = replace(stacks["generic"], runs=0, **middle)
    efficiencies = {
        unit: replace(e, runs=runs.get(("efficiency", unit), 0)) for unit, e in constants.efficiencies.items()
    }
    return replace(constants, efficiencies=efficiencies, stacks=stacks)


def leave_out(dataset: Dataset, prior: Constants, whole: Fit, source: str) -> Constants:
    """Constants of time fitted without one source; those of memory are the prior's.

    A stack that no other source has loses its numbers: it becomes generic in all that is fitted, prior
    included, and keeps only what is not fitted (what it shards, how it cuts stages, what it can run).
    """
    rows = timed(dataset) & (sources(dataset) != source)
    problem = time_problem(dataset, prior, rows)
    x = solve_again(problem, whole)
    constants = with_generic(with_values(prior, problem.parameters, x), dataset, rows)
    plain = constants.stacks["generic"]
    numbers = {name: getattr(plain, name) for name in (*STACK_SPREAD, *OPTIONAL_SPREAD)}
    stacks = {name: s if s.runs else replace(s, **numbers) for name, s in constants.stacks.items()}
    return replace(constants, stacks=stacks)
