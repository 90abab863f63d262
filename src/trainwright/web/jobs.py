"""Long work in processes of its own: each tells how far it is, can be cancelled, and leaves one result."""

import asyncio
import json
import multiprocessing
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Literal

from trainwright.web.settings import Settings
from trainwright.web.workers import Busy

State = Literal["running", "done", "failed", "cancelled"]
_SPAWN = multiprocessing.get_context("spawn")
_POLL_S = 0.1


@dataclass(slots=True, kw_only=True)
class Job:
    """One piece of long work; what it has told so far, and its result."""

    name: str
    command: str
    process: BaseProcess
    pipe: Connection
    started_s: float
    state: State = "running"
    done: int = 0
    planned: int = 0
    text: str = ""
    result: bytes = b""
    error: str = ""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def status(self) -> dict[str, object]:
        """What may be told."""
        names = ("name", "command", "state", "done", "planned", "text", "error")
        return {each: getattr(self, each) for each in names}


class Jobs:
    """All jobs of a server, the oldest that ended forgotten first."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._watching: set[asyncio.Task[None]] = set()

    def start(self, kind: str, arguments: Sequence[str], command: str) -> Job:
        """A new job, under way; Busy if there are as many as may be."""
        if sum(each.state == "running" for each in self._jobs.values()) >= self._settings.most_jobs:
            raise Busy
        pipe, other = _SPAWN.Pipe(duplex=False)
        process = _SPAWN.Process(target=_work, args=(other, kind, list(arguments)), daemon=False)
        process.start()
        other.close()
        job = Job(
            name=secrets.token_urlsafe(12), command=command, process=process, pipe=pipe,
            started_s=time.monotonic(),
        )  # fmt: skip
        self._jobs[job.name] = job
        while len(self._jobs) > self._settings.most_kept:
            oldest = next((key for key, each in self._jobs.items() if each.state != "running"), None)
            if oldest is None:
                break
            del self._jobs[oldest]
        task = asyncio.create_task(self._watch(job))
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)
        return job

    def find(self, name: str) -> Job | None:
        """The job of this name, if it is known still."""
        return self._jobs.get(name)

    def cancel(self, job: Job) -> None:
        """Stop it at once."""
        if job.state == "running":
            self._end(job, "cancelled", "cancelled")

    def stop(self) -> None:
        """Stop all."""
        for job in self._jobs.values():
            self.cancel(job)

    async def events(self, job: Job) -> AsyncIterator[str]:
        """Server-sent events: its status whenever that changes, until it has ended."""
        while True:
            job.changed.clear()
            yield f"data: {json.dumps(job.status())}\n\n"
            if job.state != "running":
                return
            try:
                async with asyncio.timeout(15.0):
                    await job.changed.wait()
            except TimeoutError:
                yield ": still there\n\n"

    async def _watch(self, job: Job) -> None:
        """Take what the process tells, until it ends."""
        while job.state == "running":
            if time.monotonic() - job.started_s > self._settings.job_s:
                self._end(job, "failed", f"took more than {self._settings.job_s:g} s; ask for less")
            elif job.pipe.poll():
                self._take(job)
            elif not job.process.is_alive():
                self._end(job, "failed", "the process ended by itself")
            else:
                await asyncio.sleep(_POLL_S)

    def _take(self, job: Job) -> None:
        try:
            kind, *rest = job.pipe.recv()
        except (EOFError, OSError):
            self._end(job, "failed", "the process ended by itself")
            return
        if kind == "progress":
            job.done, job.planned, job.text = rest
            job.changed.set()
        elif kind == "result":
            job.result = rest[0]
            self._end(job, "done", "")
        else:
            self._end(job, "failed", str(rest[0]))

    def _end(self, job: Job, state: State, error: str) -> None:
        job.state, job.error = state, error
        if state != "done":
            job.process.terminate()
            job.process.join(1)
            job.process.kill()
        job.process.join(5)
        job.pipe.close()
        job.changed.set()


def _work(pipe: Connection, kind: str, arguments: list[str]) -> None:
    """What the process does: in an empty folder, so that no name that a user sends is that of a file."""
    import os
    import tempfile

    from trainwright.errors import TrainwrightError
    from trainwright.web.long_work import KINDS

    with tempfile.TemporaryDirectory(prefix="trainwright-") as folder:
        os.chdir(folder)
        try:
            result = KINDS[kind](arguments, lambda *told: pipe.send(("progress", *told)))
            pipe.send(("result", result))
        except TrainwrightError as error:
            pipe.send(("error", str(error)))
        except Exception as error:
            pipe.send(("error", f"a fault of the server: {type(error).__name__}"))
        finally:
            os.chdir("/")
