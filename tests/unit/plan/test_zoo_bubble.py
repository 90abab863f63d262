from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from tests.builders import gpt, without_ends
from tests.unit.plan.bubble import durations, measure
from tests.unit.plan.zoo_runs import free_cluster, run
from trainwright.plan.schedules import build_schedule
from trainwright.simulate.timeline import Timeline

ROWS, MICROBATCHES = 4, 8


def _step(text: str, passes: int = 1) -> Timeline:
    """Four equal stages of two layers each, without ends, with communication free."""
    graph = replace(without_ends(gpt(layers=8)), passes=passes)
    return run(text, graph, devices=ROWS, batch=MICROBATCHES, cluster=free_cluster(ROWS))


def _seconds(timeline: Timeline) -> dict[str, float]:
    """The time of each phase of one microbatch on one row."""
    table = timeline.table
    phases = np.array([label.rpartition(" ")[2] for label in table.labels])[table.label]
    return {phase: table.seconds[phases == phase].sum() / ROWS / MICROBATCHES for phase in "FNBIW"}


def _bubble(timeline: Timeline) -> float:
    """What the step takes beyond a row's work, as a share of that work."""
    work_s = MICROBATCHES * sum(_seconds(timeline).values())
    return timeline.step_s / work_s - 1.0


@pytest.mark.parametrize(
    ("text", "fraction"),
    [
        ("gpipe", 3 / 8),  # (p−1)/m
        ("1f1b", 3 / 8),
        ("interlaced", 3 / 8),
        ("interleaved vpp=2", 3 / 16),  # (p−1)/(v·m)
        ("looped-bfs vpp=2", 3 / 16),
    ],
)
def test_bubbles_are_the_textbooks(text: str, fraction: float) -> None:
    assert _bubble(_step(text)) == pytest.approx(fraction, rel=1e-6)


def test_zero_bubble_schedules_have_the_published_bubbles() -> None:
    h1, v = _step("zb-h1"), _step("zb-v")
    seconds = _seconds(h1)
    work_s = MICROBATCHES * (seconds["F"] + seconds["I"] + seconds["W"])
    least_s = min(seconds["F"], seconds["I"], seconds["W"])
    assert _bubble(h1) == pytest.approx(3 * (seconds["F"] + seconds["I"] - least_s) / work_s, rel=1e-6)
    # Of a chunk, half a row: the longer of I and 2(I−W).
    longer_s = max(seconds["I"], 2 * (seconds["I"] - seconds["W"])) / 2
    assert _bubble(v) == pytest.approx(3 * longer_s / work_s, rel=1e-6)


def test_recycling_has_the_bubble_of_1f1b_beside_more_work() -> None:
    timeline = _step("3f1b", passes=3)
    seconds = _seconds(timeline)
    once_s = seconds["F"] + seconds["B"] + seconds["W"]
    work_s = MICROBATCHES * (once_s + seconds["N"])
    assert seconds["N"] == pytest.approx(2 * seconds["F"])
    assert _bubble(timeline) == pytest.approx(3 * once_s / work_s, rel=1e-6)


@pytest.mark.parametrize(
    "name",
    ["gpipe", "1f1b", "interleaved", "looped-bfs", "zb-h1", "zb-v", "dualpipe", "dualpipe-v", "chimera"],
)
def test_the_lowered_step_is_as_long_as_its_schedule(name: str) -> None:
    timeline = _step(name)
    schedule = build_schedule(name, ROWS, MICROBATCHES)
    chunks = schedule.stages // ROWS
    seconds = {phase: Fraction(value) / chunks for phase, value in _seconds(timeline).items()}
    seconds["B"] += seconds["I"] + seconds["W"]
    expected = measure(schedule, durations(schedule, seconds)).length
    assert timeline.step_s == pytest.approx(float(expected), rel=1e-6)
