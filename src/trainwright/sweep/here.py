"""Parts made on this machine: by this process, or by several that it starts."""

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainwright.errors import TrainwrightError
from trainwright.sweep.dataset import UnfinishedSweep
from trainwright.sweep.part import Made, Maker
from trainwright.sweep.types import Sweep

_AHEAD = 3  # parts for each worker that may be made before the first of them is taken
_ATTEMPTS = 3  # at a part whose worker ended
_POLL_S = 0.1


def make_alone(sweep: Sweep, size: int, numbers: Sequence[int], stop: Callable[[], bool]) -> Iterator[Made]:
    """Parts in order, made by this process."""
    maker = Maker(sweep, size)
    for number in numbers:
        if stop():
            return
        yield maker.make(number)


def make_together(
    sweep: Sweep, size: int, numbers: Sequence[int], workers: int, stop: Callable[[], bool]
) -> Iterator[Made]:
    """Parts in order, made by so many processes; ends early if `stop` says so."""
    desk = _Desk(numbers=numbers, ahead=workers * _AHEAD)
    order = pickle.dumps((sweep, size), protocol=5)
    threads = [threading.Thread(target=_employ, args=(desk, order), daemon=True) for _ in range(workers)]
    for thread in threads:
        thread.start()
    try:
        for place in range(len(numbers)):
            made = desk.take(place, stop)
            if made is None:
                return
            yield made
    finally:
        desk.close()
        for thread in threads:
            thread.join(5.0)


@dataclass(kw_only=True)
class _Desk:
    """Where threads take orders and put results; the one state that they share."""

    numbers: Sequence[int]
    ahead: int
    ordered: int = 0
    taken: int = 0
    closed: bool = False
    failure: Exception | None = None
    made: dict[int, Made] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)
    processes: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    def order(self) -> int | None:
        """The place of the next part to make, once there is room for it; None if there is no more to do."""
        with self.changed:
            while not self.closed and self.ordered < len(self.numbers):
                if self.ordered < self.taken + self.ahead:
                    self.ordered += 1
                    return self.ordered - 1
                self.changed.wait()
            return None

    def put(self, place: int, made: Made) -> None:
        """A part is made."""
        with self.changed:
            self.made[place] = made
            self.changed.notify_all()

    def fail(self, failure: Exception) -> None:
        """Nothing more can be made."""
        with self.changed:
            self.failure = self.failure or failure
            self.changed.notify_all()

    def take(self, place: int, stop: Callable[[], bool]) -> Made | None:
        """The part at a place, once it is made; None if it was told to stop before."""
        with self.changed:
            while place not in self.made:
                if self.failure is not None:
                    raise self.failure
                if stop():
                    return None
                self.changed.wait(_POLL_S)
            self.taken = place + 1
            self.changed.notify_all()
            return self.made.pop(place)

    def close(self) -> None:
        """End the processes."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()
            for process in self.processes:
                process.kill()
        for process in self.processes:
            process.wait()


def _employ(desk: _Desk, order: bytes) -> None:
    """Have parts made by one process after another, should one of them end."""
    try:
        process = _start(desk, order)
        while process is not None and (place := desk.order()) is not None:
            process = _make(desk, order, process, place)
    except Exception as error:
        desk.fail(error)


def _make(desk: _Desk, order: bytes, process: Any, place: int) -> Any:
    """Have one part made; returns the process that is there for the next, none if all is over."""
    for _ in range(_ATTEMPTS):
        try:
            pickle.dump(desk.numbers[place], process.stdin)
            process.stdin.flush()
            answer = pickle.load(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            if desk.closed:
                return None
            code = process.wait()
            process = _start(desk, order)
            continue
        if isinstance(answer, str):
            raise TrainwrightError(answer)
        desk.put(place, answer)
        return process
    raise UnfinishedSweep(
        f"sweep: {_ATTEMPTS} processes that made part {desk.numbers[place]} ended, the last with "
        f"code {code}); is memory short? What is finished stays: run it again with fewer --workers"
    )


def _start(desk: _Desk, order: bytes) -> "subprocess.Popen[bytes] | None":
    with desk.changed:
        if desk.closed:
            return None
        process = subprocess.Popen(
            [sys.executable, "-m", "trainwright.sweep.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_environment(),
        )  # fmt: skip
        desk.processes.append(process)
    assert process.stdin is not None
    try:
        process.stdin.write(order)
        process.stdin.flush()
    except OSError:
        pass  # it has ended: seen when an answer is asked for
    return process


def _environment() -> dict[str, str]:
    """As here, with the same modules in reach, and one thread for each process."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {**os.environ, **threads, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
