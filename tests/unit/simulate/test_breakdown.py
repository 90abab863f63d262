"""Where the time of a step goes."""

import numpy as np
import pytest

from tests.tables import Entry, build_table
from trainwright.program.table import COMMUNICATION, COMPUTE, COPY
from trainwright.simulate.breakdown import breakdown
from trainwright.simulate.simulate import simulate
from trainwright.simulate.timeline import Timeline

UNITS = ((0, COMPUTE), (0, COMMUNICATION), (0, COPY))


def test_communication_beside_compute_is_hidden_and_the_rest_is_exposed() -> None:
    # Compute 0-2 s; communication 1-4 s, 1 s of it hidden; then compute 4-5 s.
    entries = [
        Entry(seconds=1.0),
        Entry(seconds=1.0),
        Entry(seconds=3.0, lane=1, inputs=[0], cause="dp"),
        Entry(seconds=1.0, inputs=[2]),
    ]
    parts = breakdown(simulate(build_table(entries, lanes=(0, 1), units=UNITS)))
    assert parts.time_s["matmul"].tolist() == [3.0]
    assert parts.time_s["dp"].tolist() == [2.0]
    assert parts.hidden_s["dp"].tolist() == [1.0]
    assert parts.communication_s["dp"].tolist() == [3.0]
    assert parts.time_s["bubble"].tolist() == [0.0]


def test_communication_on_the_compute_unit_is_exposed() -> None:
    parts = breakdown(simulate(build_table([Entry(seconds=1.0), Entry(seconds=2.0, cause="tp")])))
    assert parts.time_s["tp"].tolist() == [2.0]
    assert parts.hidden_s["tp"].tolist() == [0.0]


def test_time_in_which_a_place_runs_nothing_is_bubble() -> None:
    entries = [Entry(seconds=3.0), Entry(seconds=1.0, lane=1, inputs=[0])]
    parts = breakdown(simulate(build_table(entries, lanes=(0, 1), units=((0, COMPUTE), (1, COMPUTE)))))
    assert parts.time_s["matmul"].tolist() == [3.0, 1.0]
    assert parts.time_s["bubble"].tolist() == [1.0, 3.0]


def test_of_two_communications_at_once_only_one_is_charged() -> None:
    # The first unit's 2 s are charged; of the copy's 3 s only the last.
    entries = [Entry(seconds=2.0, lane=1, cause="dp"), Entry(seconds=3.0, lane=2, cause="offload")]
    parts = breakdown(simulate(build_table(entries, lanes=(0, 1, 2), units=UNITS)))
    assert parts.time_s["dp"].tolist() == [2.0]
    assert parts.time_s["offload"].tolist() == [1.0]
    assert parts.hidden_s["offload"].tolist() == [2.0]


def test_measured_tasks_may_overlap_and_the_step_may_end_later() -> None:
    table = build_table([Entry(seconds=1.0), Entry(seconds=1.0)])
    measured = Timeline(table=table, start_s=np.array([0.5, 1.4]), end_s=np.array([1.5, 2.5]), step_s=3.0)
    parts = breakdown(measured)
    assert parts.time_s["matmul"].tolist() == pytest.approx([2.0])
    assert parts.time_s["bubble"].tolist() == pytest.approx([1.0])
