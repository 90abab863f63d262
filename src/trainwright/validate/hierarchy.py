"""The constants of time as a tree: each is its parent's, moved by what its own rows say.

A stack's constant is that of its kin (`catalog/stacks/`), down from `generic`; where prior.toml states one of
its own, which is a fact of the software, that is the start instead. The pace has factors besides: by device
family, by precision on a family, and by month of release, each step from the month before. A device's rates
start from published kernels. Every move has a spread, and positions count in spreads: the prior of each is a
normal distribution of width one around its parent. So a stack without rows is its kin, and a release without
rows the one before.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.constants import Efficiency, Stack
from trainwright.cost.load import GENERIC, Constants
from trainwright.plan.strategy import PRECISIONS
from trainwright.stack.load import kin_of
from trainwright.validate.dataset import Dataset, stack_name
from trainwright.validate.problem import unit_of

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

# One standard deviation of a move: of the logarithm where a constant is a rate or a time, of itself where it
# is a share (overlaps). What hosts need (send_s, op_s, step_s) was chosen by errors on sources left out. One
# configuration in several releases differs by 3 % (dense) and 14 % (with experts): the steps of releases.
EFFICIENCY_SPREAD: Mapping[str, float] = {
    "gemm": 0.06, "fp8_ratio": 0.1, "fp4_ratio": 0.15, "attention_forward": 0.2, "attention_backward": 0.2,
    "memory": 0.06,
}  # fmt: skip
STACK_SPREAD: Mapping[str, float] = {
    "pace": 0.08, "traffic": 0.4, "send_s": 0.4, "tp_forward_overlap": 0.2, "op_s": 0.4, "step_s": 0.3,
    "tp_overlap": 0.2, "dp_overlap": 0.2, "zero_overlap": 0.2, "pp_overlap": 0.1, "ep_overlap_share": 0.15,
    "cp_overlap": 0.2, "interference": 0.1, "expert_pace": 0.25, "cast_bytes": 0.5,
}  # fmt: skip
# Fitted only where the prior sets them.
OPTIONAL_SPREAD: Mapping[str, float] = {
    "pipeline_tp_s": 0.7, "pipeline_stall_s": 0.7, "zero_layer_s": 0.7, "outer_extra_s": 0.7,
    "outer_share": 0.3, "route_launches": 0.3, "expert_launches": 0.3, "expert_bias_bytes": 0.5,
}  # fmt: skip
SHARES = frozenset(name for name in STACK_SPREAD if "overlap" in name) | {"interference"}
FAMILY_SPREAD, PRECISION_SPREAD, RELEASE_SPREAD, EXPERT_RELEASE_SPREAD = 0.08, 0.08, 0.05, 0.2
# What no fit may leave: of rates, shares of the datasheet; of a pace, more would beat the kernels themselves.
BOUNDS: Mapping[str, tuple[float, float]] = {
    "pace": (0.3, 1.25), "traffic": (0.5, 6.0), "send_s": (5e-6, 1e-3), "op_s": (1e-6, 5e-4),
    "step_s": (1e-3, 0.1), "expert_pace": (0.2, 1.5), "interference": (0.0, 0.5),
    "gemm": (0.2, 1.0), "attention_forward": (0.1, 1.0), "attention_backward": (0.1, 1.0),
    "memory": (0.4, 1.0), "pipeline_tp_s": (0.0, 0.02), "pipeline_stall_s": (0.0, 5.0),
    "zero_layer_s": (0.0, 0.1), "outer_extra_s": (0.0, 5e-3), "outer_share": (0.1, 1.0),
    "route_launches": (0.0, 200.0), "expert_launches": (0.0, 20.0), "expert_bias_bytes": (0.0, 64.0),
    "cast_bytes": (0.5, 12.0),
}  # fmt: skip
_LEVEL, _RELEASE, _EXPERT_RELEASE = "family_levels", "release_levels", "expert_release_levels"
TIME_FIELDS = (
    *STACK_SPREAD,
    *OPTIONAL_SPREAD,
    _LEVEL,
    _RELEASE,
    _EXPERT_RELEASE,
    "scatter",
    "runs",
)  # of a stack: all that time depends on and a fit settles
_DELTA = 0.02  # of derivatives: relative of rates and times, absolute of shares


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One fitted number: how far a constant of a unit is from where it starts, in spreads."""

    unit: str  # a stack, or a unit of efficiencies
    field: str
    key: str = ""  # of levels: a family, a family and a precision, or a month
    spread: float

    @property
    def derived_by(self) -> str:
        """The field whose derivative is also that of this move."""
        levels = {_LEVEL: "pace", _RELEASE: "pace", _EXPERT_RELEASE: "expert_pace"}
        return levels.get(self.field, self.field)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowUnits:
    """What each row depends on."""

    stacks: NDArray[np.str_]
    units: NDArray[np.str_]
    families: NDArray[np.str_]
    precisions: NDArray[np.str_]
    releases: NDArray[np.str_]
    routed: Mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchy:
    """The moves that some rows depend on, from a prior; `stated` are the stacks' own facts, by field."""

    prior: Constants
    stated: Mapping[str, frozenset[str]]
    moves: tuple[Move, ...]
    rows: _RowUnits

    def constants(self, x: Array) -> Constants:
        """The constants at some positions of the moves."""
        at = {(m.unit, m.field, m.key): m.spread * p for m, p in zip(self.moves, x, strict=True)}
        stacks: dict[str, Stack] = {}
        for name in _parents_first(self.prior.stacks):
            stacks[name] = self._stack(name, stacks, at)
        efficiencies = {
            unit: _moved_efficiency(each, {f: at.get((unit, f, ""), 0.0) for f in EFFICIENCY_SPREAD})
            for unit, each in self.prior.efficiencies.items()
        }
        return replace(self.prior, stacks=stacks, efficiencies=efficiencies)

    def _stack(self, name: str, done: Mapping[str, Stack], at: Mapping[tuple[str, str, str], float]) -> Stack:
        own, parent = self.prior.stacks[name], done.get(parent_of(name))
        changes: dict[str, Any] = {}
        for field in (*STACK_SPREAD, *OPTIONAL_SPREAD):
            start = own if parent is None or field in self.stated.get(name, ()) else parent
            moved = at.get((name, field, ""), 0.0)
            changes[field] = bounded(field, getattr(start, field), moved)
        levels = dict(parent.family_levels) if parent else {}
        for (unit, field, key), moved in at.items():
            if unit == name and field == _LEVEL:
                levels[key] = levels.get(key, 1.0) * float(np.exp(moved))
        changes[_LEVEL] = levels
        for chain in (_RELEASE, _EXPERT_RELEASE):
            changes[chain] = _chain({k: v for (u, f, k), v in at.items() if (u, f) == (name, chain)})
        return replace(own, **changes)

    def jacobian(self, slopes: Mapping[str, Array]) -> Array:
        """Derivatives of observations by each move, from their derivatives by each field."""
        columns = [m.spread * np.where(self._mask(m), slopes[m.derived_by], 0.0) for m in self.moves]
        return np.stack(columns, axis=1) if columns else np.zeros((len(self.rows.stacks), 0))

    def _mask(self, move: Move) -> Mask:
        """The rows that a move changes."""
        rows = self.rows
        if move.field in EFFICIENCY_SPREAD:
            return np.asarray(rows.units == move.unit)
        if move.field in (_RELEASE, _EXPERT_RELEASE):
            return np.asarray((rows.stacks == move.unit) & (rows.releases >= move.key))
        own = np.isin(rows.stacks, list(self._heirs(move)))
        if move.field != _LEVEL:
            return own
        family, _, precision = move.key.partition(" ")
        return np.asarray(
            own & (rows.families == family) & ((rows.precisions == precision) | (not precision))
        )

    def _heirs(self, move: Move) -> Iterable[str]:
        """The stacks whose constant changes with a move: its own, and those that inherit it."""
        for name in self.prior.stacks:
            line = [name]
            while line[-1] != move.unit and move.field not in self.stated.get(line[-1], ()):
                if not (above := parent_of(line[-1])):
                    break
                line.append(above)
            if line[-1] == move.unit:
                yield name


def parent_of(name: str) -> str:
    """The stack that another one's constants start from; empty for the root."""
    return "" if name == GENERIC else kin_of(name) or GENERIC


def build_hierarchy(
    dataset: Dataset, prior: Constants, stated: Mapping[str, frozenset[str]], rows: Mask
) -> Hierarchy:
    """The tree of the constants that some rows depend on."""
    units = _row_units(dataset, prior)
    moves: list[Move] = []
    for unit in sorted(set(units.units[rows])):
        moves += [Move(unit=unit, field=field, spread=s) for field, s in EFFICIENCY_SPREAD.items()]
    for name in _with_parents(set(units.stacks[rows]) & set(prior.stacks)):
        optional = {f: s for f, s in OPTIONAL_SPREAD.items() if f in stated.get(name, ())}
        moves += [Move(unit=name, field=f, spread=s) for f, s in {**STACK_SPREAD, **optional}.items()]
        moves += _levels(name, units, rows)
    return Hierarchy(prior=prior, stated=stated, moves=tuple(moves), rows=units)


def _levels(name: str, units: _RowUnits, rows: Mask) -> list[Move]:
    """Levels of a stack: on families where it or an heir of its constants ran, and of its own releases."""
    own = rows & (units.stacks == name)
    heirs = rows & np.array([name in _ancestry(each) for each in units.stacks])
    moves = [
        Move(unit=name, field=_LEVEL, key=family, spread=FAMILY_SPREAD)
        for family in sorted(set(units.families[heirs]))
    ]
    pairs = {
        f"{family} {precision}"
        for family, precision in zip(units.families[heirs], units.precisions[heirs], strict=True)
        if precision in ("fp8", "fp4")
    }
    moves += [Move(unit=name, field=_LEVEL, key=key, spread=PRECISION_SPREAD) for key in sorted(pairs)]
    for field, spread, chosen in (
        (_RELEASE, RELEASE_SPREAD, own), (_EXPERT_RELEASE, EXPERT_RELEASE_SPREAD, own & units.routed),
    ):  # fmt: skip
        months = sorted(set(units.releases[chosen]) - {""})
        moves += [Move(unit=name, field=field, key=month, spread=spread) for month in months[1:]]
    return moves


def _row_units(dataset: Dataset, prior: Constants) -> _RowUnits:
    cases = dataset.cases
    precisions = [case.fixed.get("precision", (0,))[0] if case else 0 for case in cases]
    return _RowUnits(
        stacks=np.array([stack_name(case) if case else "" for case in cases]),
        units=np.array([unit_of(prior, case.cluster.device) if case else "" for case in cases]),
        families=np.array([case.cluster.device.family if case else "" for case in cases]),
        precisions=np.array([PRECISIONS[each] for each in precisions]),
        releases=np.array([case.release if case else "" for case in cases]),
        routed=np.array(["experts" in case.graph.sizes if case else False for case in cases]),
    )


@cache
def _ancestry(name: str) -> tuple[str, ...]:
    """A stack and all that it inherits from."""
    return (name, *_ancestry(parent_of(name))) if name else ()


def _with_parents(names: set[str]) -> tuple[str, ...]:
    found = set(names)
    while above := {parent_of(name) for name in found} - found - {""}:
        found |= above
    return tuple(sorted(found))


def _parents_first(names: Iterable[str]) -> list[str]:
    def depth(name: str) -> int:
        return 1 + depth(parent_of(name)) if parent_of(name) else 0

    return sorted(names, key=lambda name: (depth(name), name))


def _chain(steps: Mapping[str, float]) -> dict[str, float]:
    """Levels by month, each from the one before; months before the first step have the first's start, 1."""
    if not steps:
        return {}
    months = sorted(steps)
    sums = np.exp(np.cumsum([steps[month] for month in months]))
    return {"": 1.0} | dict(zip(months, map(float, sums), strict=True))


def bounded(field: str, start: float, moved: float) -> float:
    """A constant moved from its start, inside its physical bounds."""
    low, high = BOUNDS.get(field, (0.0, 1.0))
    value = start + moved if field in SHARES else start * np.exp(moved)
    if start == 0.0 and field not in SHARES:
        return 0.0
    return float(np.clip(value, low, high))


def _moved_efficiency(start: Efficiency, moved: Mapping[str, float]) -> Efficiency:
    """A device's rates; that of fewer bits is a share of at most 1 of that of more."""
    gemm = bounded("gemm", start.gemm, moved["gemm"])
    fp8 = gemm * min(start.gemm_fp8 / start.gemm * float(np.exp(moved["fp8_ratio"])), 1.0)
    fp4 = fp8 * min(start.gemm_fp4 / start.gemm_fp8 * float(np.exp(moved["fp4_ratio"])), 1.0)
    others: dict[str, Any] = {
        field: bounded(field, getattr(start, field), moved[field])
        for field in ("attention_forward", "attention_backward", "memory")
    }
    return replace(start, gemm=gemm, gemm_fp8=fp8, gemm_fp4=fp4, **others)


def nudged(constants: Constants, field: str) -> tuple[Constants, Mapping[str, float]]:
    """The constants with one field of all units moved a little, and by how much of each unit."""
    if field in EFFICIENCY_SPREAD:
        steps = {
            unit: -_DELTA if _is_at_end(field, each) else _DELTA
            for unit, each in constants.efficiencies.items()
        }
        rates = {
            unit: _moved_efficiency(each, {f: steps[unit] * (f == field) for f in EFFICIENCY_SPREAD})
            for unit, each in constants.efficiencies.items()
        }
        return replace(constants, efficiencies=rates), steps
    most = BOUNDS.get(field, (0.0, 1.0))[1] - 2 * _DELTA
    steps = {
        name: -_DELTA if getattr(each, field) >= most else _DELTA for name, each in constants.stacks.items()
    }
    stacks = {}
    for name, each in constants.stacks.items():
        change: dict[str, Any] = {field: bounded(field, getattr(each, field), steps[name])}
        stacks[name] = replace(each, **change)
    return replace(constants, stacks=stacks), steps


def _is_at_end(field: str, each: Efficiency) -> bool:
    ratios = {"fp8_ratio": each.gemm_fp8 / each.gemm, "fp4_ratio": each.gemm_fp4 / each.gemm_fp8}
    return field in ratios and ratios[field] >= 1.0 - 1e-9
