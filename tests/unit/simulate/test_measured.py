"""Timelines of what devices have seen."""

from dataclasses import replace

import numpy as np
import pytest

from tests.builders import free_stack, gpt, perfect, round_cluster
from trainwright.plan.expand import expand
from trainwright.plan.strategy import parse_strategy
from trainwright.program.lower import Program, lower
from trainwright.program.setting import Setting
from trainwright.program.tabulate import tabulate
from trainwright.simulate.breakdown import breakdown
from trainwright.simulate.measured import AGREEMENT, OVERHEAD, UPDATE, Seen, build_measured
from trainwright.simulate.timeline import Timeline


def program_of(text: str) -> Program:
    graph = gpt(layers=2, hidden=64, heads=4, vocab=128)
    setting = Setting(
        graph=graph, cluster=round_cluster(2), stack=free_stack(), efficiency=perfect(), seq=32,
        precision="fp32",
    )  # fmt: skip
    return lower(setting, replace(expand(parse_strategy(text), graph, 2), precision="fp32"))


@pytest.fixture(scope="module")
def program() -> Program:
    return program_of("tp2")


def number_of(program: Program, name: str, kind: str, phase: str = "F") -> int:
    steps = program.routes[0].steps
    return next(
        n for n, each in enumerate(steps) if (each.name, each.kind, each.phase) == (name, kind, phase)
    )


def reduced(program: Program) -> int:
    steps = program.routes[0].steps
    return next(n for n, each in enumerate(steps) if each.kind == "all_reduce" and each.phase == "F")


def two_devices(program: Program) -> Timeline:
    """They multiply for 1 s and 2 s, reduce until 3 s and 3.125 s, agree until 3.25 s, and update."""
    product = number_of(program, "layer.0/attention.qkv", "compute")
    ends = (Seen(0, UPDATE, -1, 3.25, 3.5), Seen(0, OVERHEAD, -1, 3.5, 3.75))
    return build_measured(
        program,
        {
            0: [
                Seen(0, product, 0, 0.0, 1.0),
                Seen(0, reduced(program), 0, 1.0, 3.0),
                Seen(0, AGREEMENT, -1, 3.0, 3.25),
                *ends,
            ],
            1: [
                Seen(0, product, 0, 0.0, 2.0),
                Seen(0, reduced(program), 0, 2.0, 3.125),
                Seen(0, AGREEMENT, -1, 3.125, 3.25),
                *ends,
            ],
        },
    )


def test_communication_begins_when_the_last_device_is_ready_for_it(program: Program) -> None:
    timeline = two_devices(program)
    table = timeline.table
    is_sum = np.array(["all_reduce" in label for label in table.labels])[table.label]
    assert timeline.start_s[is_sum].tolist() == [2.0, 2.0]
    assert timeline.end_s[is_sum].tolist() == [3.0, 3.125]
    parts = breakdown(timeline).time_s
    # The first device waits from 1 s to 2 s, and from 3 s to 3.125 s.
    assert parts["bubble"].tolist() == [1.125, 0.0]
    assert parts["tp"].tolist() == [1.0, 1.125]
    assert parts["matmul"].tolist() == [1.0, 2.0]
    assert parts["optimizer"].tolist() == [0.25, 0.25]
    assert parts["overhead"].tolist() == [0.375, 0.375]  # 0.125 s of agreeing, 0.25 s at the end


def test_the_step_ends_with_the_last_thing_that_was_seen(program: Program) -> None:
    assert two_devices(program).step_s == 3.75


def test_every_device_is_a_place_and_labels_are_those_of_predictions(program: Program) -> None:
    table = two_devices(program).table
    assert table.places == ((0,), (1,))
    assert set(table.labels) <= set(tabulate(program).labels)


def test_what_is_done_again_is_counted_apart() -> None:
    program = program_of("dp2 full")
    again = number_of(program, "layer.0/attention.qkv", "compute", "R")
    timeline = build_measured(program, {0: [Seen(0, again, 0, 0.0, 1.0)], 1: []})
    assert breakdown(timeline).time_s["recompute"].tolist() == [1.0, 0.0]
