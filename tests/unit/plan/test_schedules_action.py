"""Actions as values and as text."""

import pytest

from trainwright.errors import BadInput
from trainwright.plan.action import Action, parse_action, parse_actions, render_actions


def test_an_action_reads_as_phase_stage_and_microbatch() -> None:
    assert str(Action("F", 3, 12)) == "F3.12"
    assert parse_action("F3.12") == Action("F", 3, 12)


def test_a_recycled_forward_reads_with_its_pass() -> None:
    assert str(Action("N", 3, 12, 1)) == "N3.12.1"
    assert parse_action("N3.12.1") == Action("N", 3, 12, 1)
    assert parse_action("N3.12") == Action("N", 3, 12, 0)


def test_a_line_of_actions_keeps_its_order() -> None:
    actions = (Action("F", 0, 0), Action("F", 0, 1), Action("B", 0, 0))
    assert render_actions(actions) == "F0.0 F0.1 B0.0"
    assert parse_actions("F0.0 F0.1  B0.0\n") == actions


@pytest.mark.parametrize("text", ["", "F", "F3", "X3.12", "f3.12", "F-1.2", "F1.2.", "F1.2 ", "F¹.2"])
def test_what_is_no_action_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadInput, match=r"write it as F3\.12"):
        parse_action(text)


def test_only_recycled_forwards_have_passes() -> None:
    with pytest.raises(BadInput, match=r'action "F3\.12\.1": only N has passes; write F3\.12'):
        parse_action("F3.12.1")
