"""Starting the processes of a run on this machine, and again when one of them dies."""

import logging
import multiprocessing
import os
import shlex
import signal
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from trainwright.runtime.fork_server import start_again
from trainwright.runtime.process import BAD_INPUT, BROKEN, LOST
from trainwright.runtime.restored_handlers import restored_handlers

_GRACE_S = 60  # to write a checkpoint after notice, before a process is killed
_PRELOADED = ("trainwright.runtime.process", "trainwright.runtime.elastic", "trainwright.runtime.planners")
TRACING = ("trainwright.runtime.own_module", "torch._dynamo")  # what a module of the user's own needs too


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How processes are started: what each of them calls, how often again, and how many are left then."""

    enter: Callable[..., None]  # with the arguments, and whether it takes the place of one that has died
    arguments: tuple[Any, ...]
    restarts: int
    left: Callable[[int], int]  # of a count of processes that live: how many of them a plan can use
    preloaded: tuple[str, ...] = ()  # modules that processes are forked with, besides those that all need

    def run(self, count: int) -> int:
        """Start so many processes and wait for their end; the exit code."""
        for attempt in range(self.restarts + 1):
            failures = self._start(count, restarted=attempt > 0)
            if not failures:
                return 0
            for code in (BAD_INPUT, BROKEN):  # which another attempt would end in too
                if code in failures.values():
                    return code
            dead = {rank: code for rank, code in failures.items() if code < 0}
            if attempt < self.restarts:
                count = self.left(max(count - max(len(dead), 1), 1))
            _say(f"{_cause(failures, dead)}{_outlook(attempt, self.restarts, count)}")
        return LOST

    def _start(self, count: int, *, restarted: bool) -> Mapping[int, int]:
        """Exit codes of processes that have failed, by rank; none if all came to their end.

        They are forked from a process that has imported what they need, so that a restart is quick.
        """
        for name in ("torch.distributed", "torch.multiprocessing"):  # what is said of failures is said here
            logging.getLogger(name).setLevel(logging.CRITICAL)
        multiprocessing.get_context("forkserver").set_forkserver_preload([*_PRELOADED, *self.preloaded])
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        config = LaunchConfig(
            min_nodes=1, max_nodes=1, nproc_per_node=count, run_id=str(uuid.uuid4()), rdzv_backend="c10d",
            rdzv_endpoint="localhost:0", max_restarts=0, shutdown_timeout=_GRACE_S, start_method="forkserver",
        )  # fmt: skip
        try:
            with restored_handlers():  # torch sets its own, which raise exceptions, and leaves them
                start_again(lambda: elastic_launch(config, self.enter)(*self.arguments, restarted))
        except ChildFailedError as error:
            return {rank: int(failure.exitcode) for rank, failure in error.failures.items()}
        except SignalException as error:
            raise SystemExit(128 + int(error.sigval)) from None
        return {}


def torchrun_line(arguments: Sequence[str], count: int, restarts: int) -> str:
    """What starts the same run on many machines, if it is typed on each; torchrun restarts processes then."""
    words = ["torchrun", "--nnodes=NODES", f"--nproc-per-node={count}/NODES", f"--max-restarts={restarts}"]
    words += ["--rdzv-backend=c10d", "--rdzv-endpoint=HOST:29400", "-m", "trainwright.cli.main"]
    return " ".join([*words, shlex.join(_without_restarts(arguments))])


def _without_restarts(arguments: Sequence[str]) -> list[str]:
    """The arguments without `--restarts N` or `--restarts=N`."""
    kept: list[str] = []
    for before, word in zip(["", *arguments], arguments, strict=False):
        if before != "--restarts" and word != "--restarts" and not word.startswith("--restarts="):
            kept.append(word)
    return kept


def _cause(failures: Mapping[int, int], dead: Mapping[int, int]) -> str:
    if not dead:
        return f"process {min(failures)} has failed"
    listed = ", ".join(f"{rank} ({signal.Signals(-code).name})" for rank, code in sorted(dead.items()))
    return f"process {listed} was killed"


def _outlook(attempt: int, restarts: int, count: int) -> str:
    if attempt < restarts:
        return f"; going on with {count} processes from the last checkpoint ({attempt + 1} of {restarts})"
    return f" after {restarts} restarts; --resume continues from the last checkpoint, if there is one"


def _say(text: str) -> None:
    print(f"trainwright: {text}", file=sys.stderr, flush=True)
