"""Schedules as text."""

from tests.tables import Entry, build_table
from trainwright.program.table import COMMUNICATION, COMPUTE
from trainwright.report.drawing import render_devices, render_schedule
from trainwright.simulate.simulate import simulate

SHARES = 22  # columns


def test_a_pipeline_is_drawn_as_cells_microbatches_and_bubbles() -> None:
    # Two stages, two microbatches, forward 1 s, backward 2 s: 9 s in all, a cell each.
    entries = [
        Entry(seconds=1.0, microbatch=0, label="layer F"),
        Entry(seconds=1.0, microbatch=1, label="layer F"),
        Entry(seconds=1.0, microbatch=0, label="layer F", lane=1, inputs=[0]),
        Entry(seconds=2.0, microbatch=0, label="layer B", lane=1),
        Entry(seconds=1.0, microbatch=1, label="layer F", lane=1, inputs=[1]),
        Entry(seconds=2.0, microbatch=1, label="layer B", lane=1),
        Entry(seconds=2.0, microbatch=0, label="layer B", inputs=[3]),
        Entry(seconds=3.0, microbatch=1, label="layer B", inputs=[5]),
    ]
    timeline = simulate(build_table(entries, lanes=(0, 1), units=((0, COMPUTE), (1, COMPUTE))))
    assert render_schedule(timeline, width=10 + 10 + SHARES).splitlines() == [
        "                      works  exposed  idle",
        "device 0  FF..BB.BBB    70%       0%   30%",
        "          01  00 111",
        "device 1  .FBBFBB...    60%       0%   40%",
        "           000111",
        "          0     10 s",
        "",
        ". idle   F forward   B backward",
    ]


def test_exposed_communication_is_lower_case() -> None:
    entries = [
        Entry(seconds=5.0, label="layer W"),
        Entry(seconds=5.0, lane=1, inputs=[0], cause="dp", label="sum S"),
    ]
    timeline = simulate(build_table(entries, lanes=(0, 1), units=((0, COMPUTE), (0, COMMUNICATION))))
    drawn = render_schedule(timeline, width=10 + 10 + SHARES, microbatches=False)
    assert "device 0  WWWWWddddd    50%      50%    0%" in drawn
    assert "W gradient of weights   d exposed dp" in drawn


def test_of_many_places_some_are_drawn() -> None:
    entries = [Entry(seconds=1.0, lane=place) for place in range(9)]
    table = build_table(entries, lanes=range(9), units=[(place, COMPUTE) for place in range(9)])
    drawn = render_schedule(simulate(table), most=3)
    assert [line[:8] for line in drawn.splitlines() if line.startswith("device")] == [
        "device 0",
        "device 4",
        "device 8",
    ]
    assert "(6 places more)" in drawn


def test_a_step_without_tasks_is_drawn_too() -> None:
    assert "device 0" in render_schedule(simulate(build_table([])))


def test_devices_are_named_by_their_ends() -> None:
    assert render_devices((3,)) == "device 3"
    assert render_devices((4, 5, 6)) == "devices 4-6"
    assert render_devices((0, 8, 16)) == "device 0 and 2 more"
