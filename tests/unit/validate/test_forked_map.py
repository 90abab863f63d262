"""Work in forked processes comes back in order, and cannot hang whoever asked for it."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator

import pytest

from trainwright.errors import BadInput, TrainwrightError
from trainwright.validate.forked_map import ForkedProcessLost, forked_map

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def several_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are forked on every machine, also on one with a single core."""
    monkeypatch.setattr("os.cpu_count", lambda: 3)


@pytest.fixture
def swallowed_signals() -> Iterator[None]:
    """A handler that keeps a process alive through SIGTERM, as a launcher in the parent may have set."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    yield
    signal.signal(signal.SIGTERM, before)


def test_results_have_the_order_of_their_items() -> None:
    assert forked_map(lambda item: (item * item, os.getpid() != parent), range(50)) == [
        (item * item, True) for item in range(50)
    ]


parent = os.getpid()


def test_no_items_need_no_processes() -> None:
    assert forked_map(abs, []) == []


def test_a_process_does_not_fork_others() -> None:
    inner = forked_map(lambda _: forked_map(lambda _: os.getpid(), range(3)), range(3))
    assert all(len(set(pids)) == 1 for pids in inner)


def test_an_exception_is_raised_with_where_it_came_from() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        forked_map(lambda item: 1 // item, [3, 2, 1, 0])
    assert "in a forked process" in caught.value.__notes__[0]


def test_an_exception_that_cannot_be_pickled_is_raised_as_text() -> None:
    def refuse(item: int) -> int:
        raise _Unpicklable(threading.Lock())

    with pytest.raises(TrainwrightError, match="_Unpicklable"):
        forked_map(refuse, range(4))


class _Unpicklable(Exception):
    pass


def test_bad_input_stays_one_line() -> None:
    def refuse(item: int) -> int:
        raise BadInput("row", item, "is odd", "leave it out")

    with pytest.raises(TrainwrightError, match="is odd"):
        forked_map(refuse, range(4))


def test_a_process_that_is_killed_is_reported(swallowed_signals: None) -> None:
    with pytest.raises(ForkedProcessLost, match="exit code -9"):
        forked_map(lambda item: os.kill(os.getpid(), signal.SIGKILL), range(4))


def test_processes_forget_the_handlers_of_their_parent(swallowed_signals: None) -> None:
    assert forked_map(lambda _: signal.getsignal(signal.SIGTERM), range(3)) == [signal.SIG_DFL] * 3


def test_nothing_is_left_when_a_process_works_on_for_ever(swallowed_signals: None) -> None:
    def hang(item: int) -> int:
        if item:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            threading.Event().wait()
        raise ValueError("the first has failed")

    others = set(multiprocessing.active_children())  # of earlier tests in this process
    with pytest.raises(ValueError, match="the first has failed"):
        forked_map(hang, range(3))
    assert not set(multiprocessing.active_children()) - others
