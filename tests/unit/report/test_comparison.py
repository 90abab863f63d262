"""Predicted and measured steps side by side."""

from dataclasses import replace

import pytest

from trainwright.errors import BadInput
from trainwright.program.table import COMMUNICATION, COMPUTE
from trainwright.report.comparison import check_same, compare
from trainwright.report.saved_trace import SavedTrace
from trainwright.simulate.spans import Span, Spot, build_timeline
from trainwright.simulate.timeline import Timeline

ABOUT = {"model": "gpt", "plan": "tp2", "plan_sha256": "a", "seq": "8"}


def predicted() -> Timeline:
    """Two devices in one place: a product of 2 s, then 1 s of communication."""
    spans = [
        Span(unit=0, label="layer.0/up F", cause="matmul", start_s=0.0, end_s=1.0),
        Span(unit=0, label="layer.1/up F", cause="matmul", start_s=1.0, end_s=2.0),
        Span(unit=1, label="layer.1/up all_reduce F", cause="tp", start_s=2.0, end_s=3.0),
    ]
    return build_timeline(spans, [Spot(0, COMPUTE), Spot(0, COMMUNICATION)], [(0, 1)], 3.0)


def measured() -> Timeline:
    """Each for itself: the first device multiplies for 3 s, the second for 2 s and waits; 1 s of traffic."""
    units = [Spot(place, kind) for place in (0, 1) for kind in (COMPUTE, COMMUNICATION)]
    spans = [
        Span(unit=0, label="layer.0/up F", cause="matmul", start_s=0.0, end_s=3.0),
        Span(unit=2, label="layer.0/up F", cause="matmul", start_s=0.0, end_s=2.0),
        Span(unit=1, label="layer.1/up all_reduce F", cause="tp", start_s=3.0, end_s=4.0),
        Span(unit=3, label="layer.1/up all_reduce F", cause="tp", start_s=3.0, end_s=4.0),
    ]
    return build_timeline(spans, units, [(0,), (1,)], 4.0)


def test_the_differences_of_causes_add_up_to_that_of_the_step() -> None:
    found = compare(predicted(), measured())
    by_cause = {each.name: each.difference_s for each in found.causes}
    # The mean device multiplies for 2.5 s instead of 2 s, and is idle for half a second.
    assert by_cause == pytest.approx({"matmul": 0.5, "tp": 0.0, "bubble": 0.5})
    assert sum(by_cause.values()) == pytest.approx(found.step.difference_s)


def test_lanes_are_compared_device_by_device() -> None:
    lanes = compare(predicted(), measured()).lanes
    assert [(each.name, each.predicted_s, each.measured_s) for each in lanes[0]] == [
        ("compute", 2.0, 3.0),
        ("communication", 1.0, 1.0),
    ]
    assert lanes[1][0].measured_s == 2.0


def test_tasks_of_all_layers_are_one_row_and_the_largest_difference_comes_first() -> None:
    first, *others = compare(predicted(), measured()).tasks
    assert (first.name, first.predicted_s, first.measured_s) == ("layer/up F", 2.0, 2.5)
    assert len(others) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"plan_sha256": "b", "plan": "dp2"}, "tp2 and dp2.*different plans"),
        ({"model": "llama"}, "are of different models"),
        ({"seq": ""}, "seq.*is missing"),
    ],
)
def test_steps_of_different_plans_are_not_compared(changes: dict[str, str], message: str) -> None:
    one = SavedTrace(timeline=predicted(), about=ABOUT)
    with pytest.raises(BadInput, match=message):
        check_same(one, replace(one, about=ABOUT | changes))


def test_a_recording_that_lacks_devices_is_refused() -> None:
    part = build_timeline([], [Spot(0, COMPUTE)], [(0,)], 1.0)
    with pytest.raises(BadInput, match="devices"):
        check_same(SavedTrace(timeline=predicted(), about=ABOUT), SavedTrace(timeline=part, about=ABOUT))
