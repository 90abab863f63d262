"""Starting workers on this machine; when one dies, the others go on until another is in its place."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

from torch._C._distributed_c10d import TCPStore

from trainwright.runtime.apart.roll import Roll
from trainwright.runtime.fork_server import start_again
from trainwright.runtime.process import BAD_INPUT, BROKEN, LOST
from trainwright.runtime.restored_handlers import restored_handlers

_PRELOADED = ["trainwright.runtime.apart.worker", "torch._dynamo"]  # the latter by an optimizer, for seconds
_GRACE_S = 60.0
_LOOK_S = 0.1
_ANSWER_S = 10.0  # within which a worker sees that all others have hung up, if it listens at all


@dataclass(slots=True, kw_only=True)
class Supervisor:
    """Starts workers, `enter(*arguments, name, port, group, restarted)`, and says who is in the group."""

    enter: Callable[..., None]
    arguments: tuple[Any, ...]
    restarts: int
    timeout_s: float  # that workers wait for one another
    survives: bool  # whether the others go on when one dies
    replaces: bool  # whether another takes its place then
    store: TCPStore = field(
        default_factory=lambda: TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    )
    group: int = 0
    members: list[int] = field(default_factory=list)  # of this group
    gone: int = 0  # of them, how many have given it up
    gone_s: float = 0.0  # when the last of these did
    told: int = 0  # the signal that this process was given
    workers: dict[int, BaseProcess] = field(default_factory=dict)  # that live, those in line for a group too
    since: dict[int, int] = field(default_factory=dict)  # the group when each of them was started

    def run(self, count: int) -> int:
        """Start so many workers and wait for their end; the exit code."""
        with restored_handlers():
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
                signal.signal(number, self._forward)
            return self._supervise(count)

    def _supervise(self, count: int) -> int:
        self._start_all(count, restarted=False)
        while self.workers:
            for name, code in self._ended():
                if code in (BAD_INPUT, BROKEN) and name in self.members:
                    self._stop()
                    return code
                if code == 0:
                    self._dismiss()
                elif name not in self.members:
                    self._do_without(name, code)
                elif not self._go_on(count, name, code):
                    return LOST
            self._end_stalled()
            if self._lost_touch() and not self._try_again():
                return LOST
            self._welcome(count)
        return 128 + self.told if self.told else 0

    @property
    def roll(self) -> Roll:
        """Where groups are named."""
        return Roll(self.store)

    def _start_all(self, count: int, *, restarted: bool) -> None:
        self._name(list(range(count)))
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        for name in range(count):
            self._start(name, restarted=restarted)

    def _start(self, name: int, *, restarted: bool) -> None:
        given = (*self.arguments, name, self.store.port, self.group, restarted)

        def start() -> BaseProcess:
            process = multiprocessing.get_context("forkserver").Process(target=self.enter, args=given)
            process.start()
            return process

        self.workers[name], self.since[name] = start_again(start), self.group

    def _name(self, members: list[int]) -> None:
        """Have these go on together, from where they last met."""
        self.group, self.members, self.gone = self.group + 1, members, 0
        self.roll.name(self.group, members)

    @property
    def left(self) -> list[int]:
        """The members that live."""
        return [name for name in self.members if name in self.workers]

    def _ended(self) -> list[tuple[int, int]]:
        """A worker that has ended, and how; none if all go on for now.

        Of several, one that was killed: others may have ended because of it.
        """
        by_sentinel: dict[Any, int] = {process.sentinel: name for name, process in self.workers.items()}
        codes = {}
        for sentinel in wait(list(by_sentinel), _LOOK_S):
            process = self.workers[by_sentinel[sentinel]]
            process.join(_GRACE_S)
            codes[by_sentinel[sentinel]] = int(process.exitcode or 0)
        if not codes:
            return []
        name = min(codes, key=lambda each: codes[each])
        del self.workers[name]
        return [(name, codes[name])]

    def _go_on(self, count: int, name: int, code: int) -> bool:
        """After a member's end: the others go on, or all start anew; false if that was too often."""
        cause = _cause(name, code)
        if not self._may_go_on(cause):
            return False
        if self.survives and self.left and code < 0:
            self._name(self.left)
            _say(f"{cause}; going on with {len(self.members)} of {count} workers, which share its part")
            if self.replaces:
                self._start(name, restarted=True)
            return True
        self._stop()
        _say(f"{cause}; starting all {count} again from the last checkpoint")
        self._start_all(count, restarted=True)
        return True

    def _may_go_on(self, cause: str) -> bool:
        """Count a fault; if it is one too many, stop."""
        self.restarts -= 1
        if self.restarts >= 0 and not self.told:
            return True
        self._stop()
        _say(f"{cause}; no restarts are left; --resume continues from the last checkpoint")
        return False

    def _do_without(self, name: int, code: int) -> None:
        """After the end of a worker that was in line for a group: try again, if that may help."""
        if self.told:
            return
        again = self.restarts > 0 and code < 0
        _say(
            f"{_cause(name, code)} before it took part; " + ("trying again" if again else "going on without")
        )
        if again:
            self.restarts -= 1
            self._start(name, restarted=True)

    def _welcome(self, count: int) -> None:
        """Name a group with the workers in line that are up, which the others join at their next meeting."""
        idle = [(name, each) for name, each in self.workers.items() if name not in self.members]
        ready = [name for name, process in idle if self.roll.in_line(int(process.pid or 0))]
        whole = len(self.left) == len(self.members) and self.roll.formed(self.group)
        if ready and whole and not self.told:
            self._name(sorted([*self.members, *ready]))
            _say(
                f"worker {_listed(ready)} is back; {len(self.members)} of {count} go on from the next meeting"
            )

    def _dismiss(self) -> None:
        """When a worker has come to the end of the run: end those that its group had not taken in."""
        group = self.roll.finished()
        members = self.roll.members(group)
        for name in [each for each in self.workers if each not in members or self.since[each] > group]:
            self.workers[name].kill()
            self.workers.pop(name).join(_GRACE_S)
        if self.workers:  # which may wait for those that have ended
            self._name(sorted(self.workers))

    def _end_stalled(self) -> None:
        """Kill members that others have waited for in vain.

        Who is later than the first by more than the timeout is taken for stalled. Where only one has not
        given up, it sees all others hang up; several may be waiting for one another as long again.
        """
        gone = self._gone()
        if len(gone) != self.gone:
            self.gone, self.gone_s = len(gone), time.monotonic()
        late = [name for name in self.left if name not in gone]
        patience_s = min(self.timeout_s, _ANSWER_S) if len(late) == 1 else self.timeout_s
        if gone and late and time.monotonic() > self.gone_s + patience_s:
            _say(f"worker {_listed(late)} did not answer the others for {self.timeout_s:g} s")
            for name in late:
                self.workers[name].kill()
            self.gone_s = time.monotonic()

    def _gone(self) -> list[int]:
        """Members that have given their group up, for want of another."""
        return self.roll.left(self.group) if self.survives else []

    def _lost_touch(self) -> bool:
        """Whether all members that live have given their group up."""
        gone = self._gone()
        return bool(self.left) and all(name in gone for name in self.left)

    def _try_again(self) -> bool:
        """Have the members that live form another group; false if that was too often."""
        if not self._may_go_on("workers did not reach one another"):
            return False
        _say("workers did not reach one another; going on from their last meeting")
        self._name(self.left)
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
            process.terminate()


def _cause(name: int, code: int) -> str:
    if code < 0:
        return f"worker {name} was killed ({signal.Signals(-code).name})"
    return f"worker {name} " + ("waited for another in vain" if code == LOST else "has failed")


def _listed(names: list[int]) -> str:
    return ", ".join(map(str, names))


def _say(text: str) -> None:
    print(f"trainwright: {text}", file=sys.stderr, flush=True)
