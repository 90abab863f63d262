"""Blocks: what a screen shows of a timeline is true, and never too much."""

import numpy as np
import pytest

from trainwright.program.table import COMMUNICATION, COMPUTE
from trainwright.report.blocks import blocks_of
from trainwright.simulate.spans import Span, Spot, build_timeline
from trainwright.simulate.timeline import Timeline


def timeline(spans: list[Span], step_s: float) -> Timeline:
    units = [Spot(0, COMPUTE), Spot(0, COMMUNICATION)]
    return build_timeline(spans, units, [(0, 1)], step_s)


def test_like_work_without_a_pause_is_one_block_with_its_share_of_work() -> None:
    # Two products of one microbatch with a pause of a quarter of 1/4,000 of the step between them.
    pause = 10.0 / 4000 / 4
    spans = [
        Span(0, "a F", "matmul", 0.0, 1.0, 0), Span(0, "b F", "matmul", 1.0 + pause, 2.0, 0),
        Span(0, "a F", "matmul", 2.0, 3.0, 1), Span(1, "c S", "dp", 5.0, 6.0),
    ]  # fmt: skip
    blocks = blocks_of(timeline(spans, 10.0))
    assert blocks.lanes == ((0, "compute"), (0, "dp"), (0, "exposed"))
    assert list(zip(blocks.cell, blocks.microbatch, blocks.start_s, blocks.end_s, strict=True)) == [
        ("F", 0, 0.0, 2.0), ("F", 1, 2.0, 3.0), ("d", -1, 5.0, 6.0), ("x", -1, 5.0, 6.0),
    ]  # fmt: skip
    assert blocks.merged == 4


def test_communication_on_the_compute_unit_has_its_own_lane() -> None:
    spans = [Span(0, "a F", "matmul", 0.0, 1.0, 0), Span(0, "a all_reduce F", "tp", 1.0, 2.0, 0)]
    assert blocks_of(timeline(spans, 2.0)).lanes == ((0, "compute"), (0, "tp"), (0, "exposed"))


def test_only_the_part_of_communication_beside_no_compute_is_exposed() -> None:
    # A gradient is reduced from 1 to 4 s; the compute unit works until 2 s, and from 3 s on.
    spans = [
        Span(0, "a B", "matmul", 0.0, 2.0, 0), Span(0, "b B", "matmul", 3.0, 5.0, 0),
        Span(1, "c S", "dp", 1.0, 4.0),
    ]  # fmt: skip
    blocks = blocks_of(timeline(spans, 5.0))
    shown = zip(blocks.cell, blocks.start_s, blocks.end_s, strict=True)
    assert [each for each in shown if each[0] == "x"] == [("x", 2.0, 3.0)]
    assert blocks.cells["x"] == "exposed communication"
    assert blocks.merged == 3


@pytest.mark.parametrize("kinds", ["FB", "BW"])
def test_there_are_never_more_blocks_than_can_be_drawn(kinds: str) -> None:
    count = 40_000
    edges = np.linspace(0.0, 1.0, count + 1)
    spans = [Span(0, f"a {kinds[i % 2]}", "matmul", edges[i], edges[i + 1], i // 2 % 3) for i in range(count)]
    assert 0 < len(blocks_of(timeline(spans, 1.0)).cell) <= 12_000
