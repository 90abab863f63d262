"""Plans as text: every statement, and what is said of a bad one."""

import pytest

from trainwright.errors import BadInput
from trainwright.plan.action import Action
from trainwright.plan.plan import (
    Assign,
    Offload,
    Order,
    Plan,
    Recompute,
    Replicate,
    Shard,
    Split,
    Stage,
    Stream,
)
from trainwright.plan.text import parse_numbers, parse_plan, render_numbers, render_plan

TEXT = """\
plan all of it
devices 8
batch 4
microbatches 2
precision fp8
no-overlap
split @ffn ffn 4
split head vocab 3:5
co-split layer.0 heads 2
replicate */norm1 2
recompute layer.0-3
recompute */attention.core keep-results
recompute */ffn.up ffn.up.out
shard * optimizer
shard * weights 4
offload * activations
stream */%attention
stage embedding,layer.0-1
stage head
assign layer.0-1 0-3
assign head 4,6 route 1/2
order 0-3: F0.0 F0.1 B0.0 B0.1
"""
PLAN = Plan(
    name="all of it", devices=8, batch=4, microbatches=2, precision="fp8", overlap=False,
    transforms=(
        Split(ops="@ffn", dim="ffn", parts=4),
        Split(ops="head", dim="vocab", parts=2, sizes=(3, 5)),
        Split(ops="layer.0", dim="heads", parts=2, serial=True),
        Replicate(ops="*/norm1", parts=2),
        Recompute(ops="layer.0-3"), Recompute(ops="*/attention.core", results=()),
        Recompute(ops="*/ffn.up", results=("ffn.up.out",)),
        Shard(ops="*", what="optimizer"),
        Shard(ops="*", what="weights", ranks=4),
        Offload(ops="*", what="activations"),
        Stream(ops="*/%attention"),
    ),
    stages=(Stage(ops="embedding,layer.0-1"), Stage(ops="head")),
    assigns=(Assign(ops="layer.0-1", devices=(0, 1, 2, 3)), Assign(ops="head", devices=(4, 6), route=(1, 2))),
    orders=(
        Order(
            devices=(0, 1, 2, 3),
            actions=(Action("F", 0, 0), Action("F", 0, 1), Action("B", 0, 0), Action("B", 0, 1)),
        ),
    ),
)  # fmt: skip


def test_a_text_is_the_plan_that_it_says() -> None:
    assert parse_plan(TEXT) == PLAN


def test_a_plan_is_written_as_it_is_read() -> None:
    assert render_plan(PLAN) == TEXT


def test_comments_and_empty_lines_say_nothing() -> None:
    assert parse_plan("# two\n\ndevices 2  # devices\n") == Plan(devices=2)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((0,), "0"),
        ((0, 1), "0,1"),
        ((0, 1, 2), "0-2"),
        ((0, 4, 8, 12), "0-12:4"),
        ((3, 1), "3,1"),
        ((2, 1, 0), "2,1,0"),
    ],
)
def test_devices_are_written_in_runs(numbers: tuple[int, ...], text: str) -> None:
    assert render_numbers(numbers) == text
    assert parse_numbers(text) == numbers


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("spilt * batch 2", 'plan line 1 "spilt": no such name; did you mean "split"'),
        ("devices 2\ndevices 2", 'plan line 2 "devices": is stated twice'),
        ("devices none", 'line 1: devices "none": is not a whole number'),
        ("batch 0", 'line 1: batch "0": is not a whole number from 1 up'),
        ("precision int1", 'precision "int1": is not one of'),
        ("split * batch", "split .* takes 3 to 3 words; write split @ffn ffn 4"),
        ("split * batch 2:x", 'split "x": is not a whole number'),
        ("shard * everything", 'shard "everything": no such name'),
        ("offload * weights", 'offload "weights": no such name'),
        ("assign * 3-1", 'devices "3-1": the range is empty'),
        ("assign * one", 'devices "one": is not a number or a range'),
        ("assign * 0 route 2/2", "has a bad route; write assign layer.0-11"),
        ("order 0 F0.0", "lacks a colon; write order 0-7: F0.0"),
        ("order 0: G0.0", 'action "G0.0": not a phase'),
    ],
)
def test_a_bad_line_is_named_with_its_number_and_what_to_write(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parse_plan(text)


def test_two_plans_become_one_in_order() -> None:
    left = Plan(devices=4, transforms=(Recompute(ops="a"),))
    right = Plan(batch=2, transforms=(Recompute(ops="b"),))
    both = Plan(devices=4, batch=2, transforms=(Recompute(ops="a"), Recompute(ops="b")))
    assert left | right == both


def test_two_plans_that_disagree_do_not_become_one() -> None:
    with pytest.raises(BadInput, match=r'plan devices "4 \| 8": the two plans disagree'):
        Plan(devices=4) | Plan(devices=8)


def test_a_plan_of_no_devices_is_refused() -> None:
    with pytest.raises(BadInput, match="plan devices 0: starts at 1"):
        Plan(devices=0)
