"""What a recorder makes of turns and arrivals, by a clock that is told the time."""

import pytest

torch = pytest.importorskip("torch")

from trainwright.program.sequence import Turn  # noqa: E402
from trainwright.runtime.record import Recorder  # noqa: E402
from trainwright.runtime.transfer import Arrival  # noqa: E402
from trainwright.simulate.measured import Seen  # noqa: E402


class Clock:
    """Shows what it is set to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Work:
    """Something that comes at a time, and does not tell when it has."""

    def __init__(self, clock: Clock, comes_s: float) -> None:
        self.clock, self.comes_s = clock, comes_s

    def get_future(self) -> None:
        raise RuntimeError("not implemented")

    def wait(self) -> None:
        self.clock.now_s = max(self.clock.now_s, self.comes_s)


def recorded(clock: Clock) -> Recorder:
    """A send from 0 s to 1 s that comes at 3 s, and a turn from 1 s on that reads it and works for 2 s."""
    recorder = Recorder(clock)
    with recorder.taking(Turn(0, 4, 0)):
        clock.now_s = 1.0
        arrival = recorder.following(Arrival([Work(clock, 3.0)], lambda: None))
    with recorder.taking(Turn(0, 5, 0)):
        arrival.wait()
        clock.now_s += 2.0
    return recorder


def test_what_a_turn_waits_for_is_not_its_own_time() -> None:
    sent, worked = recorded(Clock()).seen(0.0)
    assert sent == Seen(0, 4, 0, 0.0, 3.0)
    assert worked == Seen(0, 5, 0, 3.0, 5.0)


def test_times_are_told_on_the_first_clock() -> None:
    assert recorded(Clock()).seen(10.0)[1] == Seen(0, 5, 0, 13.0, 15.0)


def test_a_wait_after_the_last_turn_is_not_taken_off_it() -> None:
    clock = Clock()
    recorder = Recorder(clock)
    with recorder.taking(Turn(0, 4, 0)):
        arrival = recorder.following(Arrival([Work(clock, 3.0)], lambda: None))
    with recorder.taking(Turn(0, 5, 0)):
        clock.now_s = 2.0
    arrival.wait()
    assert recorder.seen(0.0) == [Seen(0, 4, 0, 0.0, 3.0), Seen(0, 5, 0, 0.0, 2.0)]
