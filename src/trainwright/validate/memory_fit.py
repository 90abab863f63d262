"""The fit of the constants of memory to measured peaks, and to what ran and what ran out of memory."""

from collections.abc import Mapping
from dataclasses import replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.constants import Stack
from trainwright.cost.load import GENERIC, Constants
from trainwright.stack.load import kin_of
from trainwright.validate.dataset import Dataset, Predictions, failed, measured, outcome, ran, stack_name
from trainwright.validate.problem import (
    Array,
    Mask,
    Parameter,
    Problem,
    groups_of,
    parameters_of,
    row_weights,
    set_apart,
    solve,
    sources,
    with_values,
)
from trainwright.validate.robust_fit import Say, objective

# How far a constant may move from its prior: one standard deviation of its logarithm, alike for all stacks.
MEMORY_SPREAD: Mapping[str, float] = {
    "activations": 0.3, "logits_bytes": 0.4, "context_bytes": 0.5, "fragmentation": 0.3,
}  # fmt: skip
# A share, of itself; fitted only where the prior sets it.
OPTIONAL_SPREAD: Mapping[str, float] = {"gathered_inputs": 0.5}
# Not fitted, but set with an eye on the tables: a stack that is left out loses them with its numbers.
CHOSEN: Mapping[str, tuple[str, ...]] = dict.fromkeys(
    ("aleph-alpha-scaling", "aleph-alpha-scaling-rms"), ("gradient_bytes", "splits_logits")
)
_DOUBTFUL = 0.5  # weight of a failure whose source does not tell crashes from memory errors
_ROUNDS = 12


def bounded(dataset: Dataset) -> Mask:
    """Rows that tell more than that they fit: their memory was measured, or it ran out."""
    return failed(dataset) | np.isfinite(measured(dataset)["memory_bytes"])


def stacks_of(dataset: Dataset) -> NDArray[np.str_]:
    """The stack of each row."""
    return np.array([stack_name(case) if case else "" for case in dataset.cases])


def fit_memory(dataset: Dataset, prior: Constants, say: Say, start: Constants | None = None) -> Constants:
    """The prior with each stack's constants of memory fitted to its rows, and their median as generic."""
    rows, names = ran(dataset) | failed(dataset), stacks_of(dataset)
    stacks = _fitted(dataset, prior, rows, set(names[rows]), say, start)
    fitted = replace(prior, stacks={**prior.stacks, **stacks})
    return _with_generic(fitted, prior, set(names[bounded(dataset)]))


def leave_out_memory(dataset: Dataset, prior: Constants, whole: Constants, source: str) -> Constants:
    """The constants with those of memory fitted without one source.

    A stack that no other source has loses its numbers, and what was chosen for it: it gets its priors,
    moved as those of the stacks that remain were. It keeps what its software is documented to do.
    """
    names, others = stacks_of(dataset), sources(dataset) != source
    rows = (ran(dataset) | failed(dataset)) & others
    touched, left = set(names[~others]) & set(prior.stacks), set(names[rows])
    stacks = _fitted(dataset, prior, rows, touched & left, lambda text: None, whole)
    known = set(names[bounded(dataset) & others])
    result = _with_generic(replace(whole, stacks={**whole.stacks, **stacks}), prior, known)
    moves = _moves(result, prior, known)
    lost = {name: _without_own(result.stacks[name], prior.stacks[name], moves) for name in touched - left}
    return replace(result, stacks={**result.stacks, **lost})


def with_memory_of(constants: Constants, memory: Constants) -> Constants:
    """Constants of time with those of memory of other constants; a fork has its kin's."""
    fields = (*MEMORY_SPREAD, *OPTIONAL_SPREAD, "gradient_bytes", "splits_logits")
    stacks = {}
    for name, each in constants.stacks.items():
        known = memory.stacks.get(name) or memory.stacks[kin_of(name) or GENERIC]
        stacks[name] = replace(each, **{field: getattr(known, field) for field in fields})
    return replace(constants, stacks=stacks)


def _fitted(
    dataset: Dataset, prior: Constants, rows: Mask, names: set[str], say: Say, start: Constants | None = None
) -> dict[str, Stack]:
    """Each stack fitted to those of the rows that are its own; no row depends on two."""
    result: dict[str, Stack] = {}
    for name in sorted(names & set(prior.stacks) - {GENERIC}):
        problem = memory_problem(dataset, prior, rows & (stacks_of(dataset) == name), name)
        found = solve(problem, _ROUNDS, lambda text: None, start)
        result[name] = with_values(prior, found.parameters, found.x).stacks[name]
        say(f"memory of {name}: objective {objective(problem, found.x, problem.logs(found.x)):.1f}")
    return result


def _with_generic(constants: Constants, prior: Constants, known: set[str]) -> Constants:
    """The constants with the generic stack moved as those were whose memory is bounded from both sides."""
    moves = _moves(constants, prior, known)
    generic = _with_moves(constants.stacks[GENERIC], prior.stacks[GENERIC], moves)
    return replace(constants, stacks={**constants.stacks, GENERIC: generic})


def _moves(constants: Constants, prior: Constants, known: set[str]) -> Mapping[str, float]:
    """By what factor the fit moved each number from its prior, in the median over known stacks."""
    names = sorted(known & set(prior.stacks) - {GENERIC})
    pairs = [(constants.stacks[name], prior.stacks[name]) for name in names]
    return {
        field: median(getattr(fitted, field) / getattr(start, field) for fitted, start in pairs)
        for field in (MEMORY_SPREAD if pairs else ())
    }


def _with_moves(stack: Stack, prior: Stack, moves: Mapping[str, float]) -> Stack:
    """A stack with its prior's numbers of memory, each moved by its factor."""
    changes = {field: factor * getattr(prior, field) for field, factor in moves.items()}
    return replace(stack, **changes)


def _without_own(stack: Stack, prior: Stack, moves: Mapping[str, float]) -> Stack:
    """A stack as if its rows had not been seen."""
    plain = Stack(name="")
    stated = {field: getattr(prior, field) for field in OPTIONAL_SPREAD}
    chosen = {field: getattr(plain, field) for field in CHOSEN.get(stack.name, ())}
    return replace(_with_moves(stack, prior, moves), **stated, **chosen)


def memory_problem(dataset: Dataset, prior: Constants, rows: Mask, name: str) -> Problem:
    """The problem of predicting a stack's measured memory (first) and which of its rows fit (then)."""
    peaks, weights = measured(dataset)["memory_bytes"], row_weights(dataset, rows)
    trusted = np.where(["crashed" in outcome(row) for row in dataset.rows], _DOUBTFUL, 1.0)

    def observe(predictions: Predictions, constants: Constants) -> Array:
        filled = filled_shares(dataset, predictions)
        return np.asarray(np.log(np.concatenate([predictions.memory_bytes, filled])))

    return Problem(
        dataset=dataset, prior=prior, parameters=_parameters(prior.stacks[name]),
        groups=groups_of(dataset, rows), observe=observe,
        target=np.concatenate([np.log(peaks), np.zeros(len(rows))]),
        side=np.concatenate([np.zeros(len(rows)), np.where(failed(dataset), -1.0, 1.0)]),
        weights=np.concatenate([np.where(np.isfinite(peaks), weights, 0.0), weights * trusted]),
    )  # fmt: skip


def filled_shares(dataset: Dataset, predictions: Predictions) -> Array:
    """Bytes that each row needs, of its device's; 1 where a row is held to fail for another reason."""
    room = np.full(len(dataset.rows), np.nan)
    for group in dataset.groups:
        room[list(group.indices)] = group.case.cluster.device.memory[0].usable_bytes
    filled = predictions.needed_bytes / room
    return np.where(~predictions.fits & (filled < 1.0), 1.0, filled)


def _parameters(stack: Stack) -> tuple[Parameter, ...]:
    spreads = {**MEMORY_SPREAD, **set_apart(stack, OPTIONAL_SPREAD)}
    return parameters_of("stack", stack.name, stack, spreads, OPTIONAL_SPREAD)
