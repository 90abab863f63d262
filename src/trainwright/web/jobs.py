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
from typing import Any, Literal

from trainwright.web.settings import Settings
from trainwright.web.workers import Busy

State = Literal["waiting", "running", "done", "failed", "cancelled"]
_SPAWN = multiprocessing.get_context("spawn")
_POLL_S = 0.1


@dataclass(slots=True, kw_only=True)
class Job:
    """One piece of long work; what it has told so far, and its result."""

    name: str
    command: str
    kind: str
    arguments: tuple[Any, ...]
    process: BaseProcess | None = None  # as long as it runs
    pipe: Connection | None = None
    state: State = "waiting"
    done: int = 0
    planned: int = 0
    text: str = "waits for other jobs"
    result: bytes = b""  # compressed
    error: str = ""
    changed: asyncio.Event = field(default_factory=asyncio.Event)  # another for each change

    def tell(self) -> None:
        """Wake everyone who follows it."""
        self.changed.set()
        self.changed = asyncio.Event()

    @property
    def ended(self) -> bool:
        """Whether nothing more comes of it."""
        return self.state not in ("waiting", "running")

    def status(self) -> dict[str, object]:
        """What may be told."""
        names = ("name", "command", "state", "done", "planned", "text", "error")
        return {each: getattr(self, each) for each in names}


class Jobs:
    """All jobs of a server, the oldest that ended forgotten first.

    So many run at a time, others wait; what is asked for again is the job that there is.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._watching: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(settings.most_jobs)

    def start(self, kind: str, arguments: Sequence[Any], command: str) -> Job:
        """A job that does this, new or not; Busy if as many wait as may."""
        asked = (kind, tuple(arguments))
        for job in self._jobs.values():
            if (job.kind, job.arguments) == asked and job.state not in ("failed", "cancelled"):
                return job
        if sum(not each.ended for each in self._jobs.values()) >= self._settings.most_jobs_waiting:
            raise Busy
        job = Job(name=secrets.token_urlsafe(12), command=command, kind=kind, arguments=asked[1])
        self._jobs[job.name] = job
        self._forget_oldest()
        task = asyncio.create_task(self._run(job))
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)
        return job

    def find(self, name: str) -> Job | None:
        """The job of this name, if it is known still."""
        return self._jobs.get(name)

    def cancel(self, job: Job) -> None:
        """Stop it at once."""
        if not job.ended:
            self._end(job, "cancelled", "cancelled")

    def stop(self) -> None:
        """Stop all."""
        for job in self._jobs.values():
            self.cancel(job)

    async def events(self, job: Job) -> AsyncIterator[str]:
        """Server-sent events: its status whenever that changes, until it has ended."""
        while True:
            changed = job.changed
            yield f"data: {json.dumps(job.status())}\n\n"
            if job.ended:
                return
            try:
                async with asyncio.timeout(15.0):
                    await changed.wait()
            except TimeoutError:
                yield ": still there\n\n"

    def _forget_oldest(self) -> None:
        ended = [each for each in self._jobs.values() if each.ended]
        held = sum(len(each.result) for each in ended)
        for job in ended:
            if len(self._jobs) > self._settings.most_kept or held > self._settings.most_kept_bytes:
                held -= len(job.result)
                del self._jobs[job.name]

    async def _run(self, job: Job) -> None:
        """Wait for a place, then take what the process tells, until it ends."""
        async with self._slots:
            if job.ended:
                return
            pipe, process = _begin(job)
            until_s = time.monotonic() + self._settings.job_s
            while not job.ended:
                if time.monotonic() > until_s:
                    self._end(job, "failed", f"took more than {self._settings.job_s:g} s; ask for less")
                elif pipe.poll():
                    self._take(job, pipe)
                elif not process.is_alive():
                    self._end(job, "failed", "the process ended by itself")
                else:
                    await asyncio.sleep(_POLL_S)

    def _take(self, job: Job, pipe: Connection) -> None:
        try:
            kind, *rest = pipe.recv()
        except (EOFError, OSError):
            self._end(job, "failed", "the process ended by itself")
            return
        if kind == "progress":
            job.done, job.planned, job.text = rest
            job.tell()
        elif kind == "result":
            job.result = rest[0]
            self._end(job, "done", "")
        else:
            self._end(job, "failed", str(rest[0]))

    def _end(self, job: Job, state: State, error: str) -> None:
        job.state, job.error = state, error
        if job.process and job.pipe:
            if state != "done":
                job.process.terminate()
                job.process.join(1)
                job.process.kill()
            job.process.join(5)
            job.pipe.close()
        job.process = job.pipe = None
        job.tell()


def _begin(job: Job) -> tuple[Connection, BaseProcess]:
    """Start the process of a job."""
    pipe, other = _SPAWN.Pipe(duplex=False)
    process = _SPAWN.Process(target=_work, args=(other, job.kind, list(job.arguments)), daemon=False)
    process.start()
    other.close()
    job.process, job.pipe, job.state, job.text = process, pipe, "running", "starts"
    job.tell()
    return pipe, process


def _work(pipe: Connection, kind: str, arguments: list[Any]) -> None:
    """What the process does: in an empty folder, so that no name that a user sends is that of a file."""
    import os
    import tempfile

    from trainwright.errors import TrainwrightError
    from trainwright.web.answering import packed
    from trainwright.web.long_work import KINDS

    with tempfile.TemporaryDirectory(prefix="trainwright-") as folder:
        os.chdir(folder)
        try:
            result = KINDS[kind](arguments, lambda *told: pipe.send(("progress", *told)))
            pipe.send(("result", packed(result)))
        except TrainwrightError as error:
            pipe.send(("error", str(error)))
        except Exception as error:
            pipe.send(("error", f"a fault of the server: {type(error).__name__}"))
        finally:
            os.chdir("/")
