"""Processes that wait for cases, so that hundreds of them can be tried without starting each anew."""

import os
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from trainwright.runtime.fork_server import start_again

_PATIENCE = timedelta(seconds=600 if os.environ.get("THOROUGH") else 120)
_START_S = 300.0  # until all processes are there
_END_S = 30.0  # until a killed process is gone, and until one that waits has answered
_READY = "ready"
# What processes are forked with, so that each need not import it again; it takes half as long as a case.
_IMPORTED = ["tests.runtime.equality", *(["transformers"] if find_spec("transformers") else [])]


@dataclass(slots=True)
class Pool:
    """Processes of one group, each of which does what it is told."""

    processes: list[BaseProcess]
    pipes: list[Connection]
    broken: str = ""

    @property
    def alive(self) -> bool:
        """Whether all processes answer; those that a failing test started were killed.

        The system may still list a process that was just killed as alive, so each is asked.
        """
        try:
            for pipe in self.pipes:
                pipe.send(None)
            return all(pipe.poll(_END_S) and pipe.recv() == _READY for pipe in self.pipes)
        except (EOFError, OSError):
            return False

    def run(self, work: Callable[..., Any], *arguments: object) -> list[Any]:
        """What a function returns in each process; it is called as `work(rank, *arguments)`."""
        assert not self.broken, f"an earlier case broke the pool: {self.broken}"
        for pipe in self.pipes:
            pipe.send((work, arguments))
        answers: list[tuple[bool, Any]] = []
        for rank, pipe in enumerate(self.pipes):
            if not pipe.poll(2 * _PATIENCE.total_seconds()):
                self.broken = f"process {rank} does not answer"
                raise AssertionError(self.broken)
            try:
                answers.append(pipe.recv())
            except (EOFError, OSError):
                self.broken = f"process {rank} has ended"
                raise AssertionError(self.broken) from None
        failed = [(rank, text) for rank, (done, text) in enumerate(answers) if not done]
        if failed:
            # What went wrong first, not the others' complaint that one of them is gone.
            rank, text = min(failed, key=lambda each: "gloo" in each[1])
            if len(failed) < len(answers) or "gloo" in failed[-1][1]:
                self.broken = text.splitlines()[-1]
            raise AssertionError(f"process {rank}: {text}")
        return [answer for _, answer in answers]


@contextmanager
def open_pool(count: int) -> Iterator[Pool]:
    """Processes that can communicate through gloo."""
    context = get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory) / "store"
        pairs = [context.Pipe() for _ in range(count)]
        processes = [
            context.Process(target=_serve, args=(rank, count, str(store), pairs[rank][1]), daemon=True)
            for rank in range(count)
        ]
        for process in processes:
            start_again(process.start)  # a failing test may have killed the fork server
        for _, far in pairs:
            far.close()  # so that a pipe ends with its process
        try:
            for near, _ in pairs:
                assert near.poll(_START_S), "a process did not start"
                near.recv()
            yield Pool(processes=list(processes), pipes=[near for near, _ in pairs])
        finally:
            for process in processes:
                process.kill()
                process.join(_END_S)


def _serve(rank: int, count: int, store: str, pipe: Connection) -> None:
    """Do what comes through a pipe, until it closes."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=count, timeout=_PATIENCE
    )
    pipe.send(_READY)
    while True:
        received = pipe.recv()
        if received is None:
            pipe.send(_READY)
            continue
        work, arguments = received
        try:
            pipe.send((True, work(rank, *arguments)))
        except Exception:
            pipe.send((False, traceback.format_exc()))
