"""The fit of constants to measured runs: few, physical, held to priors."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

import numpy as np
from numpy.typing import NDArray

from trainwright.cluster.types import Device
from trainwright.cost.constants import Efficiency, Stack
from trainwright.cost.load import Constants
from trainwright.validate.dataset import Dataset, measured, predict

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

# How far a constant may move from its prior: one standard deviation, of its logarithm where it is a rate,
# of itself where it is a share (overlaps).
EFFICIENCY_SPREAD: Mapping[str, float] = {
    "gemm": 0.10, "gemm_fp8": 0.15, "gemm_fp4": 0.2, "attention_forward": 0.2, "attention_backward": 0.2,
    "memory": 0.1, "inner_link": 0.1, "outer_link": 0.15, "inner_latency_s": 0.5, "outer_latency_s": 0.5,
}  # fmt: skip
STACK_SPREAD: Mapping[str, float] = {
    "pace": 0.15, "traffic": 0.5, "send_s": 1.0, "tp_forward_overlap": 0.3, "op_s": 1.0, "step_s": 1.0,
    "tp_overlap": 0.3, "dp_overlap": 0.3, "zero_overlap": 0.3, "pp_overlap": 0.3, "ep_overlap": 0.3,
    "cp_overlap": 0.3, "interference": 0.1,
}  # fmt: skip
# Fitted only where the prior sets them.
OPTIONAL_SPREAD: Mapping[str, float] = {
    "pipeline_tp_s": 0.7, "pipeline_stall_s": 0.7, "zero_layer_s": 0.7, "outer_extra_s": 0.7,
    "outer_share": 0.3,
}  # fmt: skip
SHARES = frozenset(name for name in STACK_SPREAD if name.endswith("overlap")) | {"interference"}
_SCALE = 0.06  # residuals beyond this count linearly, as in Huber's loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One fitted number: where it lives, how it is scaled, and how far it may stray from its prior."""

    kind: str  # "efficiency" or "stack"
    unit: str
    field: str
    prior: float
    spread: float

    def value(self, x: float) -> float:
        """The constant at position `x`, in spreads from the prior."""
        if self.field in SHARES:
            return float(np.clip(self.prior + self.spread * x, 0.0, 1.0))
        return float(self.prior * np.exp(self.spread * x))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The end of a fit: its parameters, their positions, and how predictions move with each."""

    constants: Constants
    parameters: tuple[Parameter, ...]
    x: Array
    jacobian: Array


def parameters_of(dataset: Dataset, prior: Constants, rows: Mask) -> tuple[Parameter, ...]:
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
        for field, spread in _spreads(holder).items():
            result.append(
                Parameter(kind=kind, unit=unit, field=field, prior=getattr(holder, field), spread=spread)
            )
    return tuple(result)


def _spreads(holder: Efficiency | Stack) -> Mapping[str, float]:
    if isinstance(holder, Efficiency):
        return EFFICIENCY_SPREAD
    plain = Stack(name="")
    return dict(STACK_SPREAD) | {
        name: spread
        for name, spread in OPTIONAL_SPREAD.items()
        if getattr(holder, name) != getattr(plain, name)
    }


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


def sources(dataset: Dataset) -> NDArray[np.str_]:
    """The source of each row."""
    return np.array([case.source if case else "" for case in dataset.cases])


def timed(dataset: Dataset) -> Mask:
    """Rows with a measured step time."""
    return np.isfinite(measured(dataset)["step_s"])


def row_weights(dataset: Dataset, rows: Mask) -> Array:
    """Weights that let each source count about alike: n^-0.35 per row."""
    names = sources(dataset)
    weights = np.zeros(len(names))
    for source in set(names[rows]):
        chosen = rows & (names == source)
        weights[chosen] = chosen.sum() ** -0.35
    return weights


def fit(dataset: Dataset, prior: Constants, rows: Mask, rounds: int, say: Callable[[str], None]) -> Fit:
    """Constants that predict the chosen rows best under a robust loss and the priors.

    Gauss–Newton with re-weighting: residuals are logarithms of predicted over measured, a row that is far
    off counts less, and a step is taken only if it lowers the objective.
    """
    problem = Problem.of(dataset, prior, rows)
    x = np.zeros(len(problem.parameters))
    logs = problem.logs(x)
    cost, damping = problem.cost(x, logs), 1e-2
    jacobian = problem.jacobian(x, logs)
    for number in range(rounds):
        candidate, candidate_logs, candidate_cost = x, logs, np.inf
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
        jacobian = problem.jacobian(x, logs)
        say(f"round {number + 1}: objective {cost:.1f}")
        if gained < 1e-4 * cost:
            break
    constants = with_generic(with_values(prior, problem.parameters, x), dataset, rows)
    return Fit(constants=constants, parameters=problem.parameters, x=x, jacobian=jacobian)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Rows to be predicted, and the numbers that may move."""

    dataset: Dataset
    prior: Constants
    parameters: tuple[Parameter, ...]
    rows: Mask
    weights: Array
    target: Array

    @staticmethod
    def of(dataset: Dataset, prior: Constants, rows: Mask) -> "Problem":
        """The problem of fitting some rows."""
        return Problem(
            dataset=dataset, prior=prior, parameters=parameters_of(dataset, prior, rows), rows=rows,
            weights=row_weights(dataset, rows), target=np.log(measured(dataset)["step_s"]),
        )  # fmt: skip

    def logs(self, x: Array, groups: Sequence[int] | None = None) -> Array:
        """Logarithms of the predicted step times."""
        constants = with_values(self.prior, self.parameters, x)
        used = self._groups() if groups is None else groups
        return np.log(predict(self.dataset, constants.stack, constants.efficiency, used).step_s)

    def _groups(self) -> list[int]:
        return [i for i, group in enumerate(self.dataset.groups) if self.rows[list(group.indices)].any()]

    def residuals(self, logs: Array) -> Array:
        """How far each row is off; 0 for rows that are not chosen."""
        return np.where(self.rows, logs - self.target, 0.0)

    def cost(self, x: Array, logs: Array) -> float:
        """The objective: a robust loss of residuals, and squared distances from the priors."""
        r = self.residuals(logs) / _SCALE
        robust = 2.0 * (np.sqrt(1.0 + r * r) - 1.0)
        return float((self.weights * robust).sum() + (x * x).sum())

    def jacobian(self, x: Array, logs: Array) -> Array:
        """One column per parameter; only groups that use its unit are predicted again."""
        columns = _map(partial(self._column, x, logs), range(len(self.parameters)))
        return np.stack(columns, axis=1)

    def _column(self, x: Array, logs: Array, index: int, delta: float = 0.05) -> Array:
        parameter = self.parameters[index]
        groups = [i for i in self._groups() if self._uses(i, parameter)]
        moved = x.copy()
        at_end = parameter.field in SHARES and parameter.value(x[index] + delta) >= 1.0
        moved[index] += -delta if at_end else delta
        changed = self.logs(moved, groups)
        return np.where(self.rows & np.isfinite(changed), (changed - logs) / (moved[index] - x[index]), 0.0)

    def _uses(self, index: int, parameter: Parameter) -> bool:
        group = self.dataset.groups[index]
        if parameter.kind == "stack":
            return group.stack == parameter.unit
        return unit_of(self.prior, group.case.cluster.device) == parameter.unit

    def step(self, x: Array, logs: Array, jacobian: Array, damping: float) -> Array:
        """The damped Gauss–Newton step."""
        r = self.residuals(logs)
        weight = self.weights / np.sqrt(1.0 + (r / _SCALE) ** 2) / _SCALE**2
        weighted = jacobian * weight[:, None]
        normal = jacobian.T @ weighted + np.eye(len(x))
        normal += damping * np.diag(np.diag(normal))
        return np.asarray(np.linalg.solve(normal, -(weighted.T @ r) - x))


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
    return Constants(efficiencies=efficiencies, stacks=stacks)


def leave_out(dataset: Dataset, prior: Constants, whole: Fit, source: str) -> Constants:
    """Constants fitted without one source.

    A stack that no other source has loses its numbers: it becomes generic in all that is fitted, prior
    included, and keeps only what is not fitted here (what it shards, keeps and recomputes). The fit of
    all rows is the start and lends its derivatives; three steps suffice, as few numbers move far.
    """
    rows = timed(dataset) & (sources(dataset) != source)
    problem = Problem.of(dataset, prior, rows)
    where = [whole.parameters.index(parameter) for parameter in problem.parameters]
    jacobian, x = np.where(rows[:, None], whole.jacobian[:, where], 0.0), whole.x[where]
    for _ in range(3):
        x = np.clip(x + problem.step(x, problem.logs(x), jacobian, 1e-3), -4.0, 4.0)
    constants = with_generic(with_values(prior, problem.parameters, x), dataset, rows)
    plain = constants.stacks["generic"]
    numbers = {name: getattr(plain, name) for name in (*STACK_SPREAD, *OPTIONAL_SPREAD)}
    stacks = {name: s if s.runs else replace(s, **numbers) for name, s in constants.stacks.items()}
    return Constants(efficiencies=constants.efficiencies, stacks=stacks)


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
