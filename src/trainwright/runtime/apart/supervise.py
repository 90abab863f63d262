"""Starting workers on this machine, and letting the others go on when one dies."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

from torch._C._distributed_c10d import TCPStore

from trainwright.runtime.process import BAD_INPUT, BROKEN, LOST

_PRELOADED = ["trainwright.runtime.apart.worker"]
_GRACE_S = 60.0


@dataclass(slots=True, kw_only=True)
class Supervisor:
    """Starts workers, `enter(*arguments, name, port, group, restarted)`, and says who is in the group."""

    enter: Callable[..., None]
    arguments: tuple[Any, ...]
    restarts: int
    survives: bool
    group: int = 0
    told: int = 0  # the signal that this process was given
    workers: dict[int, BaseProcess] = field(default_factory=dict)

    def run(self, count: int) -> int:
        """Start so many workers and wait for their end; the exit code."""
        store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, self._forward)
        self._start(store, count, restarted=False)
        while self.workers:
            for name, code in self._ended():
                if code in (BAD_INPUT, BROKEN):
                    self._stop()
                    return code
                if code != 0 and not self._go_on(store, count, name, code):
                    return LOST
        return 128 + self.told if self.told else 0

    def _start(self, store: TCPStore, count: int, *, restarted: bool) -> None:
        self.group += 1
        store.set(f"members/{self.group}", ",".join(map(str, range(count))))
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        for name in range(count):
            given = (*self.arguments, name, store.port, self.group, restarted)
            self.workers[name] = context.Process(target=self.enter, args=given)
            self.workers[name].start()

    def _ended(self) -> list[tuple[int, int]]:
        """The workers that have ended, and how; waits for at least one."""
        by_sentinel = {process.sentinel: name for name, process in self.workers.items()}
        found = []
        for sentinel in wait(list(by_sentinel)):
            name = by_sentinel[sentinel]  # type: ignore[index]
            self.workers[name].join()
            found.append((name, int(self.workers.pop(name).exitcode or 0)))
        return found

    def _go_on(self, store: TCPStore, count: int, name: int, code: int) -> bool:
        """After a worker's death: the others go on, or all start anew; false if that was too often."""
        self.restarts -= 1
        cause = f"worker {name} " + (
            f"was killed ({signal.Signals(-code).name})" if code < 0 else "has failed"
        )
        if self.restarts < 0 or self.told:
            self._stop()
            _say(f"{cause}; no restarts are left; --resume continues from the last checkpoint")
            return False
        if self.survives and self.workers and code < 0:
            self.group += 1
            left = sorted(self.workers)
            _say(f"{cause}; going on with {len(left)} of {count} workers, which share its part")
            store.set(f"members/{self.group}", ",".join(map(str, left)))
            return True
        self._stop()
        _say(f"{cause}; starting all {count} again from the last checkpoint")
        self._start(store, count, restarted=True)
        return True

    def _stop(self) -> None:
        for process in self.workers.values():
            process.kill()
        for process in self.workers.values():
            process.join(_GRACE_S)
        self.workers.clear()

    def _forward(self, number: int, frame: object) -> None:
        """Pass notice on to the workers, which end after their round."""
        self.told = number
        for process in self.workers.values():
            if process.pid:
                os.kill(process.pid, signal.SIGTERM)


def _say(text: str) -> None:
    print(f"trainwright: {text}", file=sys.stderr, flush=True)
