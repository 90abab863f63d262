"""What a step waits for, by hand."""

import numpy as np
import pytest

from tests.tables import Entry, build_table
from trainwright.program.table import COMMUNICATION, COMPUTE, Table
from trainwright.simulate.critical import critical_path, free_causes
from trainwright.simulate.simulate import simulate
from trainwright.simulate.timeline import Timeline

UNITS = ((0, COMPUTE), (0, COMMUNICATION))


def gathered() -> Table:
    """Compute 0-1 s; beside it a gather 0-3 s, for which the second compute task waits until 3 s."""
    return build_table(
        [
            Entry(seconds=1.0, label="a F"),
            Entry(seconds=3.0, label="gather F", lane=1, cause="dp"),
            Entry(seconds=2.0, label="b F", inputs=[1]),
        ],
        lanes=(0, 1),
        units=UNITS,
    )


def test_the_path_goes_through_what_ended_last() -> None:
    path = critical_path(simulate(gathered()))
    assert path.tasks == (1, 2)
    assert path.cause_s == {"dp": 3.0, "matmul": 2.0}
    assert path.label_s == {"gather F": 3.0, "b F": 2.0}


def test_a_busy_unit_is_waited_for_like_an_input() -> None:
    # The other lane's task occupies the unit until 2 s.
    entries = [Entry(seconds=2.0, lane=0), Entry(seconds=1.0, lane=1)]
    assert critical_path(simulate(build_table(entries, lanes=(0, 0)))).tasks == (0, 1)


def test_time_that_no_task_explains_is_waiting() -> None:
    table = build_table([Entry(seconds=1.0), Entry(seconds=1.0)])
    measured = Timeline(table=table, start_s=np.array([0.5, 2.0]), end_s=np.array([1.5, 3.0]), step_s=3.0)
    assert critical_path(measured).cause_s == {"matmul": 2.0, "waiting": 1.0}


def test_a_cause_that_is_free_shortens_the_step_by_what_it_alone_adds() -> None:
    # 5 s. Without dp: 1 + 2 = 3 s. Without matmul: 3 s. Without a: still 5 s, so it is not on the path.
    gains = {each.what: each.gain_s for each in free_causes(simulate(gathered()))}
    assert gains == pytest.approx({"dp": 2.0, "matmul": 2.0, "gather F": 2.0, "b F": 2.0})


def test_a_step_without_tasks_has_no_path() -> None:
    assert critical_path(simulate(build_table([]))).tasks == ()
