"""Constants of memory are found again from peaks, runs and failures; where nothing tells, the prior holds."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tests.builders import perfect
from tests.unit.validate.test_rows import row
from trainwright.cost.constants import Stack
from trainwright.cost.load import Constants
from trainwright.validate.dataset import Dataset, build_dataset, predict
from trainwright.validate.memory_fit import fit_memory, leave_out_memory

NANOTRON = Stack(name="nanotron", reports="reserved")
ONEFLOW = Stack(name="oneflow")
PRIOR = Constants(
    efficiencies={"class": perfect()},
    stacks={"generic": Stack(name="generic"), "nanotron": NANOTRON, "oneflow": ONEFLOW},
)


def layouts(framework: str, source: str, batches: Sequence[int] = (1, 2)) -> list[dict[str, str]]:
    return [
        row(
            framework=framework, source=source, memory_gib="", dp=str(64 // tp), tp=str(tp),
            micro_batch=str(batch), global_batch=str(64 * batch), vocab=vocab, zero=zero,
            recompute="none", precision="bf16",
        )
        for tp, batch, vocab, zero in product((1, 2, 4), batches, ("32000", "256000"), ("0", "1"))
    ]  # fmt: skip


def dataset(rows: list[dict[str, str]]) -> Dataset:
    return build_dataset(rows, PRIOR.stack)


def as_if_measured(rows: list[dict[str, str]], truth: Stack) -> list[dict[str, str]]:
    """The rows with the memory that they have under planted constants."""
    constants = replace(PRIOR, stacks={**PRIOR.stacks, truth.name: truth})
    peaks = predict(dataset(rows), constants.stack, constants.efficiency).memory_bytes / 2**30
    return [each | {"memory_gib": str(peak)} for each, peak in zip(rows, peaks, strict=True)]


def as_if_tried(rows: list[dict[str, str]], truth: Stack) -> list[dict[str, str]]:
    """The rows with nothing but whether they fit under planted constants."""
    constants = replace(PRIOR, stacks={**PRIOR.stacks, truth.name: truth})
    fits = predict(dataset(rows), constants.stack, constants.efficiency).fits
    assert 0 < fits.sum() < len(rows)
    failure = {"step_time_s": "", "outcome": "OOM Error"}
    return [each if fit else each | failure for each, fit in zip(rows, fits, strict=True)]


def fitted(rows: list[dict[str, str]]) -> Constants:
    return fit_memory(dataset(rows), PRIOR, lambda text: None)


def test_planted_constants_are_found_again_from_measured_memory() -> None:
    truth = replace(ONEFLOW, activations=1.4, logits_bytes=14.0, context_bytes=4e9)
    found = fitted(as_if_measured(layouts("oneflow", "a paper"), truth)).stacks["oneflow"]
    assert found.activations == pytest.approx(1.4, rel=0.1)
    assert found.logits_bytes == pytest.approx(14.0, rel=0.1)
    assert found.context_bytes == pytest.approx(4e9, rel=0.2)


def test_failures_raise_what_is_needed() -> None:
    rows = as_if_tried(layouts("oneflow", "a paper", range(2, 24, 2)), replace(ONEFLOW, activations=2.0))
    before = predict(dataset(rows), PRIOR.stack, PRIOR.efficiency).fits
    constants = fitted(rows)
    after = predict(dataset(rows), constants.stack, constants.efficiency).fits
    ran = np.array([bool(each["step_time_s"]) for each in rows])
    assert constants.stacks["oneflow"].activations > 1.2
    assert (after != ran).sum() < 0.5 * (before != ran).sum()


def test_a_context_that_is_not_reported_shows_in_what_fails() -> None:
    truth = replace(NANOTRON, context_bytes=40e9)
    measured = as_if_measured(layouts("nanotron", "a paper"), truth)
    quiet = fitted(measured).stacks["nanotron"]
    told = fitted(measured + as_if_tried(layouts("nanotron", "a paper", range(2, 24, 2)), truth))
    assert quiet.context_bytes == pytest.approx(NANOTRON.context_bytes, rel=0.01)
    assert told.stacks["nanotron"].context_bytes > 2.0 * NANOTRON.context_bytes


def test_runs_that_fit_move_nothing() -> None:
    assert fitted(layouts("oneflow", "a paper")).stacks == PRIOR.stacks


def test_a_stack_without_rows_keeps_its_prior_and_generic_is_the_median() -> None:
    truth = replace(ONEFLOW, activations=1.4)
    constants = fitted(as_if_measured(layouts("oneflow", "a paper"), truth))
    assert constants.stacks["nanotron"] == NANOTRON
    assert constants.stacks["generic"].activations == constants.stacks["oneflow"].activations


def test_a_stack_that_only_the_left_out_source_has_is_moved_as_the_others_were() -> None:
    one = replace(ONEFLOW, activations=1.4)
    prior = replace(PRIOR, stacks={**PRIOR.stacks, "oneflow": replace(ONEFLOW, gradient_bytes=2.0)})
    other = replace(NANOTRON, activations=0.8)
    rows = as_if_measured(layouts("oneflow", "a paper"), one)
    rows += as_if_measured(layouts("nanotron", "a book"), other)
    outcomes = dataset(rows)
    whole = fit_memory(outcomes, prior, lambda text: None)
    without = leave_out_memory(outcomes, prior, whole, "a paper")
    assert without.stacks["nanotron"] == whole.stacks["nanotron"]
    assert without.stacks["oneflow"].activations == whole.stacks["nanotron"].activations
    assert without.stacks["oneflow"].gradient_bytes == 2.0  # what its software does is not fitted


def test_a_stack_that_another_source_has_is_fitted_to_that() -> None:
    rows = as_if_measured(layouts("oneflow", "a paper"), replace(ONEFLOW, activations=1.4))
    rows += as_if_measured(layouts("oneflow", "a book"), replace(ONEFLOW, activations=0.8))
    outcomes = dataset(rows)
    whole = fit_memory(outcomes, PRIOR, lambda text: None)
    without = leave_out_memory(outcomes, PRIOR, whole, "a paper")
    assert without.stacks["oneflow"].activations < 0.9 < whole.stacks["oneflow"].activations
