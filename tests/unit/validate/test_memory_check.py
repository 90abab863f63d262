"""OOM risk and memory ranges are judged on sources whose rows no constant has seen."""

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.validate.test_memory_fit import NANOTRON, ONEFLOW, PRIOR, as_if_measured, dataset, layouts
from trainwright.validate.memory_check import (
    hold_out_memory,
    render_memory_check,
    risk_outcomes,
    summarize_risk,
)
from trainwright.validate.memory_fit import fit_memory
from trainwright.validate.memory_spread import memory_evidence, memory_spreads


def rows_of_two_sources() -> list[dict[str, str]]:
    rows = as_if_measured(layouts("oneflow", "a paper"), replace(ONEFLOW, activations=1.1))
    return rows + as_if_measured(layouts("nanotron", "a book"), replace(NANOTRON, activations=1.2))


def test_a_source_is_predicted_without_itself() -> None:
    outcomes = dataset(rows_of_two_sources())
    held = hold_out_memory(outcomes, PRIOR, fit_memory(outcomes, PRIOR, lambda text: None), lambda text: None)
    found = {each.source: each for each in risk_outcomes(outcomes, held)}
    assert set(found) == {"a paper", "a book"}
    assert all(each.peaks == 24 and each.failures == 0 for each in found.values())
    # Activations of one are a tenth more than the other's, and a part of the whole.
    assert 0.0 < found["a paper"].median_error < 0.1


def test_failures_at_a_low_stated_risk_are_counted_and_doubtful_ones_apart() -> None:
    rows = rows_of_two_sources()
    small = rows[0] | {"step_time_s": "", "memory_gib": "", "outcome": "crashed/oom"}
    certain = rows[1] | {"step_time_s": "", "memory_gib": "", "outcome": "OOM Error"}
    outcomes = dataset([*rows, small, certain])
    held = hold_out_memory(outcomes, PRIOR, PRIOR, lambda text: None)
    found = risk_outcomes(outcomes, replace(held, filled=np.full(len(outcomes.rows), 0.2)))
    totals = summarize_risk(found)
    assert totals["low_risk"] == 50
    assert totals["ran"] == pytest.approx(48 / 50)
    assert totals["ran_certain"] == pytest.approx(48 / 49)


def test_the_page_states_what_was_computed() -> None:
    outcomes = dataset(rows_of_two_sources())
    fitted = fit_memory(outcomes, PRIOR, lambda text: None)
    held = hold_out_memory(outcomes, PRIOR, fitted, lambda text: None)
    evidence = memory_evidence(outcomes, held.memory_bytes, held.filled)
    page = render_memory_check(outcomes, held, memory_spreads(outcomes, evidence, evidence))
    assert "| a paper | 24 | 0 |" in page
    assert "| unknown | " in page
