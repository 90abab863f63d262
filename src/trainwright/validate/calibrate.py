"""The fit of constants to measured runs: few, physical, held to priors, and judged on sources left out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from trainwright.cluster.types import Device
from trainwright.cost.constants import Efficiency, Stack
from trainwright.validate.dataset import Dataset, measured, predict

Array = NDArray[np.float64]

# How far a constant may move from its prior: one standard deviation, of its logarithm where it is a rate,
# of itself where it is a share (overlaps).
EFFICIENCY_SPREAD: Mapping[str, float] = {
    "gemm": 0.10, "gemm_fp8": 0.15, "gemm_fp4": 0.2, "attention_forward": 0.2, "attention_backward": 0.2,
    "memory": 0.1, "inner_link": 0.1, "outer_link": 0.15, "inner_latency_s": 0.5, "outer_latency_s": 0.5,
}  # fmt: skip
STACK_SPREAD: Mapping[str, float] = {
    "pace": 0.15, "traffic": 0.5, "send_s": 1.0, "tp_forward_overlap": 0.3, "op_s": 1.0, "step_s": 1.0, "tp_overlap": 0.3, "dp_overlap": 0.3, "zero_overlap": 0.3,
    "pp_overlap": 0.3, "ep_overlap": 0.3, "cp_overlap": 0.3, "interference": 0.1,
}  # fmt: skip
OPTIONAL = ("pipeline_tp_s", "pipeline_stall_s", "zero_layer_s", "outer_extra_s")  # fitted where a prior is set
SHARES = ("zero_overlap", "tp_overlap", "tp_forward_overlap", "dp_overlap", "pp_overlap", "ep_overlap", "cp_overlap", "interference")


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """Everything that is fitted: efficiencies by unit (a device or a family), stacks by name."""

    efficiencies: Mapping[str, Efficiency]
    stacks: Mapping[str, Stack]

    def efficiency(self, device: Device) -> Efficiency:
        """The device's own constants, else its family's, else those of all accelerators."""
        for unit, basis in ((device.name, "device"), (device.family, "family"), ("class", "class")):
            if unit in self.efficiencies:
                return replace(self.efficiencies[unit], basis=basis)
        return Efficiency()

    def stack(self, name: str) -> Stack:
        """The stack of this name, else the generic one."""
        return self.stacks.get(name) or replace(self.stacks["generic"], name=name, basis="generic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One fitted number: where it lives, how it is scaled, and how far it may stray from its prior."""

    kind: str  # "efficiency" or "stack"
    unit: str
    field: str
    prior: float
    spread: float

    @property
    def is_share(self) -> bool:
        """Whether it is fitted as it is, between 0 and 1, rather than by its logarithm."""
        return self.field in SHARES

    def value(self, x: float) -> float:
        """The constant at position `x`, in spreads from the prior."""
        if self.is_share:
            return float(np.clip(self.prior + self.spread * x, 0.0, 1.0))
        return float(self.prior * np.exp(self.spread * x))


def parameters_of(dataset: Dataset, prior: Constants, rows: NDArray[np.bool_]) -> tuple[Parameter, ...]:
    """Every constant that some of the chosen rows depend on."""
    used: dict[tuple[str, str], None] = {}
    for group in dataset.groups:
        if rows[list(group.indices)].any():
            used[("efficiency", unit_of(prior, group.case.cluster.device))] = None
            if group.stack in prior.stacks:
                used[("stack", group.stack)] = None
    result: list[Parameter] = []
    for kind, unit in used:
        table = EFFICIENCY_SPREAD if kind == "efficiency" else STACK_SPREAD
        holder = prior.efficiencies[unit] if kind == "efficiency" else prior.stacks[unit]
        extra = {name: 0.7 for name in OPTIONAL if getattr(holder, name, 0.0) > 0}
        if getattr(holder, "outer_share", 1.0) < 1.0:
            extra["outer_share"] = 0.3
        for field, spread in (table | extra).items():
            result.append(Parameter(kind=kind, unit=unit, field=field, prior=getattr(holder, field), spread=spread))
    return tuple(result)


def unit_of(constants: Constants, device: Device) -> str:
    """The unit whose constants a device uses."""
    return next(unit for unit in (device.name, device.family, "class") if unit in constants.efficiencies)


def with_values(prior: Constants, parameters: Sequence[Parameter], x: Array) -> Constants:
    """The constants at a position of the fit."""
    efficiencies, stacks = dict(prior.efficiencies), dict(prior.stacks)
    for parameter, position in zip(parameters, x, strict=True):
        change = {parameter.field: parameter.value(float(position))}
        if parameter.kind == "efficiency":
            efficiencies[parameter.unit] = replace(efficiencies[parameter.unit], **change)  # type: ignore[arg-type]
        else:
            stacks[parameter.unit] = replace(stacks[parameter.unit], **change)  # type: ignore[arg-type]
    return Constants(efficiencies=efficiencies, stacks=stacks)


def row_weights(dataset: Dataset, rows: NDArray[np.bool_]) -> Array:
    """Weights that let each source count about alike: n^-0.35 per row."""
    sources = np.array([case.source if case else "" for case in dataset.cases])
    weights = np.zeros(len(sources))
    for source in set(sources[rows]):
        chosen = rows & (sources == source)
        weights[chosen] = chosen.sum() ** -0.35
    return weights


def fit(dataset: Dataset, prior: Constants, rows: NDArray[np.bool_], rounds: int = 12) -> Constants:
    """Constants that predict the chosen rows best under a robust loss and the priors.

    Gauss–Newton with re-weighting: residuals are logarithms of predicted over measured, a row that is far
    off counts less, and a step is taken only if it lowers the objective.
    """
    parameters = parameters_of(dataset, prior, rows)
    problem = _Problem(dataset=dataset, prior=prior, parameters=parameters, rows=rows,
                       weights=row_weights(dataset, rows), target=np.log(measured(dataset)["step_s"]))  # fmt: skip
    x = np.zeros(len(parameters))
    logs = problem.logs(x)
    cost, damping = problem.cost(x, logs), 1e-2
    for _ in range(rounds):
        jacobian = problem.jacobian(x, logs)
        for _ in range(4):
            candidate = np.clip(x + problem.step(x, logs, jacobian, damping), -4.0, 4.0)
            candidate_logs = problem.logs(candidate)
            candidate_cost = problem.cost(candidate, candidate_logs)
            if candidate_cost < cost:
                break
            damping *= 10
        if candidate_cost >= cost:
            break
        gained = cost - candidate_cost
        x, logs, cost, damping = candidate, candidate_logs, candidate_cost, damping / 5
        if gained < 1e-4 * cost:
            break
    return with_values(prior, parameters, x)


_SCALE = 0.06  # residuals beyond this count linearly, as in Huber's loss


@dataclass(frozen=True, slots=True, kw_only=True)
class _Problem:
    dataset: Dataset
    prior: Constants
    parameters: Sequence[Parameter]
    rows: NDArray[np.bool_]
    weights: Array
    target: Array

    def logs(self, x: Array, groups: Sequence[int] | None = None) -> Array:
        constants = with_values(self.prior, self.parameters, x)
        used = self._groups() if groups is None else groups
        return np.log(predict(self.dataset, constants.stack, constants.efficiency, used).step_s)

    def _groups(self) -> list[int]:
        return [i for i, group in enumerate(self.dataset.groups) if self.rows[list(group.indices)].any()]

    def residuals(self, logs: Array) -> Array:
        return np.where(self.rows, logs - self.target, 0.0)

    def cost(self, x: Array, logs: Array) -> float:
        r = self.residuals(logs) / _SCALE
        robust = 2.0 * (np.sqrt(1.0 + r * r) - 1.0)
        return float((self.weights * robust).sum() + (x * x).sum())

    def jacobian(self, x: Array, logs: Array, delta: float = 0.05) -> Array:
        """One column per parameter; only groups that use its unit are predicted again."""
        columns = _map(partial(self._column, x, logs, delta), range(len(self.parameters)))
        return np.stack(columns, axis=1)

    def _column(self, x: Array, logs: Array, delta: float, index: int) -> Array:
        parameter = self.parameters[index]
        groups = [i for i in self._groups() if self._uses(i, parameter)]
        moved = x.copy()
        sign = -1.0 if parameter.is_share and parameter.value(x[index] + delta) >= 1.0 else 1.0
        moved[index] += sign * delta
        changed = self.logs(moved, groups)
        return np.where(self.rows & np.isfinite(changed), sign * (changed - logs) / delta, 0.0)

    def _uses(self, index: int, parameter: Parameter) -> bool:
        group = self.dataset.groups[index]
        if parameter.kind == "stack":
            return group.stack == parameter.unit
        return unit_of(self.prior, group.case.cluster.device) == parameter.unit

    def step(self, x: Array, logs: Array, jacobian: Array, damping: float) -> Array:
        r = self.residuals(logs)
        weight = self.weights / np.sqrt(1.0 + (r / _SCALE) ** 2) / _SCALE**2
        weighted = jacobian * weight[:, None]
        normal = jacobian.T @ weighted + np.eye(len(x))
        normal += damping * np.diag(np.diag(normal))
        return np.asarray(np.linalg.solve(normal, -(weighted.T @ r) - x))


def _map(function: Callable[[int], Array], items: Sequence[int]) -> list[Array]:
    """The function of each item, on all cores; processes are forked, so that nothing is copied."""
    import multiprocessing

    global _work
    _work = function
    with multiprocessing.get_context("fork").Pool() as pool:
        return pool.map(_call, items, chunksize=4)


_work: Callable[[int], Array] | None = None


def _call(item: int) -> Array:
    assert _work is not None
    return _work(item)


def leave_out(dataset: Dataset, prior: Constants, source: str, rounds: int = 6) -> Constants:
    """Constants fitted without one source."""
    used = np.array([case is not None and case.step_time_s is not None for case in dataset.cases])
    sources = np.array([case.source if case else "" for case in dataset.cases])
    return fit(dataset, prior, used & (sources != source), rounds)


def changed_fields(value: Efficiency | Stack) -> dict[str, object]:
    """Fields of a set of constants as a flat table."""
    return {field.name: getattr(value, field.name) for field in fields(value)}
