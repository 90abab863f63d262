"""Processes that answer questions: warm, each one question at a time; one that takes too long is replaced."""

import asyncio
import hashlib
import multiprocessing
import os
import tempfile
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic

from trainwright.api.fields import Request, is_stated
from trainwright.api.plan_request import PlanRequest
from trainwright.web.settings import Settings

_SPAWN = multiprocessing.get_context("spawn")
_WARM = ("plan", PlanRequest("gpt2", "h100:8"))
_SLOW_FIELDS = ("pareto", "algorithm", "flexible", "max_days", "max_dollars", "batch_range")
_MOST_QUESTIONS = 2_000  # of one process, which is then replaced: nothing it may leak adds up
_START_S = 120.0
_LOOK_S = 1.0  # between looks at how long a worker has worked
_PATIENCE = 4.0  # times as long as a question may take, for one that waits for a core

Question = tuple[str, Request | None]  # its kind, and what is asked


class Busy(Exception):
    """More questions at a time than the server takes."""


class TooLong(Exception):
    """A question took longer than it may."""


class _Worker:
    """A process and the line to it."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.pipe, other = _SPAWN.Pipe()
        self.process = _SPAWN.Process(target=_serve, args=(other, folder), daemon=True)
        self.process.start()
        other.close()
        self.answered = 0
        self.ready = False

    def ask(self, question: Question, within_s: float) -> tuple[int, bytes]:
        """The answer, or TooLong; a worker that failed so is of no more use."""
        if not self.ready:
            if not self.pipe.poll(_START_S) or self.pipe.recv() != "ready":
                raise TooLong
            self.ready = True
        self.pipe.send(question)
        self._wait(within_s)
        self.answered += 1
        status, body = self.pipe.recv()
        return int(status), bytes(body)

    def _wait(self, within_s: float) -> None:
        """Return when there is an answer; raise TooLong if the process has worked for so long without one.

        Work counts, not time: on a machine that others use too, a question may wait for a core.
        """
        began_s, before_s = monotonic(), processor_s(self.process.pid)
        while not self.pipe.poll(min(within_s, _LOOK_S)):
            waited_s, now_s = monotonic() - began_s, processor_s(self.process.pid)
            worked_s = waited_s if before_s is None or now_s is None else now_s - before_s
            if worked_s > within_s or waited_s > _PATIENCE * within_s:
                raise TooLong

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        self.process.kill()
        self.process.join(5)
        self.pipe.close()

    def renewed(self) -> "_Worker":
        """Another in its place."""
        self.stop()
        return _Worker(self.folder)


def processor_s(pid: int | None) -> float | None:
    """Processor time of a process so far; nothing where the system does not tell (it does on Linux)."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")  # in the user's and the system's code


def _serve(pipe: Connection, folder: str) -> None:
    """Answer until the line is closed, in an empty folder: no name is that of a file there."""
    import signal

    from trainwright.web.answering import answer, packed, packed_answer

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server ends it
    os.chdir(folder)
    answer(*_WARM)
    pipe.send("ready")
    while True:
        try:
            kind, request = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            pipe.send(packed_answer(kind, request))
        except Exception as error:  # a fault of ours: told as such, and the worker lives
            text = f'{{"error":"a fault of the server: {type(error).__name__}"}}'
            pipe.send((500, packed(text.encode())))


@dataclass(slots=True, kw_only=True)
class _Asked:
    """A question under way, and how many wait for its answer."""

    answer: "asyncio.Task[tuple[int, bytes]]"
    waiting: int = 0
    handed: bool = False  # to a worker, which goes on whoever leaves


class Workers:
    """A pool of workers, and the answers given lately.

    What takes long (a front, a simulated step) never has all workers: plans are answered meanwhile.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._idle: asyncio.LifoQueue[_Worker] = asyncio.LifoQueue()
        self._all: list[_Worker] = []
        self._kept: OrderedDict[str, tuple[int, bytes]] = OrderedDict()
        self._kept_bytes = 0
        self._asked: dict[str, _Asked] = {}  # in the order of their arrival
        self._tickets: dict[str, str] = {}  # of those who want to know their place: the key of their question
        self._slow = asyncio.Semaphore(max(1, settings.workers - 1))
        self._threads = ThreadPoolExecutor(settings.workers, "trainwright-worker")
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def start(self) -> None:
        """Start all processes; they warm up by themselves."""
        self._folder = tempfile.TemporaryDirectory(prefix="trainwright-")
        for _ in range(self._settings.workers):
            self._add(_Worker(self._folder.name))

    def stop(self) -> None:
        """End all processes."""
        for worker in self._all:
            worker.stop()
        self._all.clear()
        if self._folder:
            self._folder.cleanup()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def ask(self, question: Question, ticket: str = "") -> tuple[int, bytes]:
        """An answer, compressed: one that is kept, one that another waits for just now, or a new one.

        Whoever leaves cancels this; a question that nobody waits for any more is dropped unless a worker has
        it already. With a ticket, `place` tells meanwhile how many are before it.
        """
        key = hashlib.sha256(repr(question).encode()).hexdigest()
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        asked = self._asked.get(key) or self._start(key, question)
        asked.waiting += 1
        if ticket:
            self._tickets[ticket] = key
        try:
            return await asyncio.shield(asked.answer)
        finally:
            self._tickets.pop(ticket, None)
            asked.waiting -= 1
            if not (asked.waiting or asked.handed or asked.answer.done()):
                asked.answer.cancel()

    def place(self, ticket: str) -> int:
        """The place in the queue of whoever has this ticket: 1 is next, 0 waits no longer.

        What takes long may be passed by what does not.
        """
        key, place = self._tickets.get(ticket), 0
        if key not in self._asked or self._asked[key].handed:
            return 0
        for other, asked in self._asked.items():
            place += not asked.handed
            if other == key:
                break
        return place

    def _start(self, key: str, question: Question) -> _Asked:
        if len(self._asked) >= self._settings.most_waiting:
            raise Busy
        asked = _Asked(answer=asyncio.ensure_future(self._new(key, question)))
        self._asked[key] = asked
        asked.answer.add_done_callback(lambda done: self._forget(key, done))
        return asked

    def _forget(self, key: str, done: "asyncio.Future[tuple[int, bytes]]") -> None:
        self._asked.pop(key, None)
        if not done.cancelled():
            done.exception()  # whoever waits has it

    async def _new(self, key: str, question: Question) -> tuple[int, bytes]:
        if _takes_long(question):
            async with self._slow:
                result = await self._answer(key, question)
        else:
            result = await self._answer(key, question)
        self._keep(key, result)
        return result

    async def _answer(self, key: str, question: Question) -> tuple[int, bytes]:
        worker = await self._idle.get()
        self._asked[key].handed = True
        loop = asyncio.get_running_loop()
        try:
            result = await loop.run_in_executor(self._threads, worker.ask, question, self._settings.answer_s)
        except (TooLong, EOFError, OSError) as error:
            await self._replace(worker)
            raise TooLong from error
        if worker.answered >= _MOST_QUESTIONS:
            await self._replace(worker)
        else:
            self._idle.put_nowait(worker)
        return result

    def _add(self, worker: _Worker) -> None:
        self._all.append(worker)
        self._idle.put_nowait(worker)

    async def _replace(self, worker: _Worker) -> None:
        self._all.remove(worker)
        self._add(await asyncio.to_thread(worker.renewed))

    def _keep(self, key: str, result: tuple[int, bytes]) -> None:
        size = len(key) + len(result[1])
        if result[0] == 500 or size > self._settings.cache_bytes // 8:
            return
        self._kept[key] = result
        self._kept_bytes += size
        while self._kept_bytes > self._settings.cache_bytes:
            old, (_, body) = self._kept.popitem(last=False)
            self._kept_bytes -= len(old) + len(body)


def _takes_long(question: Question) -> bool:
    """Whether an answer is no plan alone: a step, a front, or a search for every algorithm beside it."""
    kind, request = question
    if not isinstance(request, PlanRequest):
        return kind != "catalog"
    return any(is_stated(request, name) for name in _SLOW_FIELDS)
