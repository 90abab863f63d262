"""The fit of the constants of memory to measured peaks, and to what ran and what ran out of memory."""

from collections.abc import Mapping
from dataclasses import replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.constants import Stack
from trainwright.cost.load import GENERIC, Constants
from trainwright.validate.dataset import Dataset, Predictions, failed, measured, outcome, ran, stack_name
from trainwright.validate.problem import (
    Array,
    Mask,
    Parameter,
    Problem,
    Say,
    groups_of,
    parameters_of,
    row_weights,
    set_apart,
    solve,
    sources,
    with_values,
)

# How far a constant may move from its prior: one standard deviation of its logarithm, alike for all stacks.
MEMORY_SPREAD: Mapping[str, float] = {
    "activations": 0.3, "logits_bytes": 0.4, "context_bytes": 0.5, "fragmentation": 0.3,
}  # fmt: skip
# A share, of itself; fitted only where the prior sets it.
OPTIONAL_SPREAD: Mapping[str, float] = {"gathered_inputs": 0.5}
# Not fitted, but set with an eye on the tables: a stack that is left out loses them with its numbers.
CHOSEN = ("gradient_bytes", "splits_logits")
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
    return _with_generic(replace(prior, stacks={**prior.stacks, **stacks}), set(names[bounded(dataset)]))


def leave_out_memory(dataset: Dataset, prior: Constants, whole: Constants, source: str) -> Constants:
    """The constants with those of memory fitted without one source.

    A stack that no other source has loses its numbers, and what was chosen for it, and becomes generic: the
    median of those that remain. It keeps what its software is documented to do.
    """
    names, others = stacks_of(dataset), sources(dataset) != source
    rows = (ran(dataset) | failed(dataset)) & others
    touched, left = set(names[~others]) & set(prior.stacks), set(names[rows])
    stacks = _fitted(dataset, prior, rows, touched & left, lambda text: None, whole)
    result = _with_generic(
        replace(whole, stacks={**whole.stacks, **stacks}), set(names[bounded(dataset) & others])
    )
    plain = result.stacks[GENERIC]
    numbers = {name: getattr(plain, name) for name in (*MEMORY_SPREAD, *OPTIONAL_SPREAD, *CHOSEN)}
    lost = {name: replace(result.stacks[name], **numbers) for name in touched - left}
    return replace(result, stacks={**result.stacks, **lost})


def _fitted(
    dataset: Dataset, prior: Constants, rows: Mask, names: set[str], say: Say, start: Constants | None = None
) -> dict[str, Stack]:
    """Each stack fitted to those of the rows that are its own; no row depends on two."""
    result: dict[str, Stack] = {}
    for name in sorted(names & set(prior.stacks) - {GENERIC}):
        problem = memory_problem(dataset, prior, rows & (stacks_of(dataset) == name), name)
        found = solve(problem, _ROUNDS, lambda text: None, start)
        result[name] = with_values(prior, found.parameters, found.x).stacks[name]
        say(f"memory of {name}: objective {problem.cost(found.x, problem.logs(found.x)):.1f}")
    return result


def _with_generic(constants: Constants, known: set[str]) -> Constants:
    """The constants with the generic stack at the median of those whose memory is bounded from both sides."""
    fitted = [stack for name, stack in constants.stacks.items() if name in known and name != GENERIC]
    if not fitted:
        return constants
    middle = {name: median(getattr(stack, name) for stack in fitted) for name in MEMORY_SPREAD}
    generic = replace(constants.stacks[GENERIC], **middle)
    return replace(constants, stacks={**constants.stacks, GENERIC: generic})


def memory_problem(dataset: Dataset, prior: Constants, rows: Mask, name: str) -> Problem:
    """The problem of predicting a stack's measured memory (first) and which of its rows fit (then)."""
    peaks, weights = measured(dataset)["memory_bytes"], row_weights(dataset, rows)
    trusted = np.where(["crashed" in outcome(row) for row in dataset.rows], _DOUBTFUL, 1.0)

    def observe(predictions: Predictions, constants: Constants) -> Array:
        filled = filled_shares(dataset, predictions, constants)
        return np.asarray(np.log(np.concatenate([predictions.memory_bytes, filled])))

    return Problem(
        dataset=dataset, prior=prior, parameters=_parameters(prior.stacks[name]),
        groups=groups_of(dataset, rows), observe=observe,
        target=np.concatenate([np.log(peaks), np.zeros(len(rows))]),
        side=np.concatenate([np.zeros(len(rows)), np.where(failed(dataset), -1.0, 1.0)]),
        weights=np.concatenate([np.where(np.isfinite(peaks), weights, 0.0), weights * trusted]),
    )  # fmt: skip


def filled_shares(dataset: Dataset, predictions: Predictions, constants: Constants) -> Array:
    """Bytes that each row needs, of its device's; 1 where a row is held to fail for another reason."""
    hidden, room = np.zeros(len(dataset.rows)), np.full(len(dataset.rows), np.nan)
    for group in dataset.groups:
        stack, at = constants.stack(group.stack), list(group.indices)
        hidden[at] = 0.0 if stack.reports_context else stack.context_bytes
        room[at] = group.case.cluster.device.memory[0].usable_bytes
    filled = (predictions.memory_bytes + hidden) / room
    return np.where(~predictions.fits & (filled < 1.0), 1.0, filled)


def _parameters(stack: Stack) -> tuple[Parameter, ...]:
    spreads = {**MEMORY_SPREAD, **set_apart(stack, OPTIONAL_SPREAD)}
    return parameters_of("stack", stack.name, stack, spreads, OPTIONAL_SPREAD)
