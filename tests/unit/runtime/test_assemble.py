"""Groups of workers that form, or are given up before they do."""

from threading import Timer

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from trainwright.runtime.apart.assemble import assemble, connect, next_group  # noqa: E402
from trainwright.runtime.apart.roll import Roll  # noqa: E402


@pytest.fixture
def roll() -> Roll:
    found = Roll(dist.HashStore())
    found.name(1, [0, 1])
    return found


def test_a_worker_passes_over_groups_that_it_is_not_in(roll: Roll) -> None:
    roll.name(2, [0])
    roll.name(3, [0, 1])
    assert next_group(roll, 2, 1) == 3


def test_a_group_is_there_when_all_members_have_come(roll: Roll) -> None:
    roll.come(1, 1)
    assemble(roll, 1, 0, patience_s=0.0)
    assert roll.left(1) == []


@pytest.mark.parametrize("how", ["a later group", "one has left"])
def test_a_group_is_given_up_when_it_cannot_form(how: str, roll: Roll) -> None:
    roll.name(2, [0]) if how == "a later group" else roll.leave(1, 1)
    with pytest.raises(RuntimeError, match="group 1 does not form"):
        assemble(roll, 1, 0, patience_s=60.0)


def test_a_group_is_given_up_when_nobody_comes_in_time(roll: Roll) -> None:
    with pytest.raises(RuntimeError, match="timed out"):
        assemble(roll, 1, 0, patience_s=0.0)


def test_one_that_dies_before_it_says_where_it_is_holds_up_no_one(roll: Roll) -> None:
    Timer(0.2, roll.name, (2, [0])).start()
    with pytest.raises(RuntimeError, match="group 1 does not form"):
        connect(roll, 1, 0, timeout_s=60.0)
    assert not dist.is_initialized()
    connect(roll, 2, 0, timeout_s=60.0)  # although it has tried before
    assert roll.formed(2)
    dist.destroy_process_group()
