"""Processes that answer questions: warm, each one question at a time; one that takes too long is replaced."""

import asyncio
import multiprocessing
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

from trainwright.web.settings import Settings

_SPAWN = multiprocessing.get_context("spawn")
_WARM = ("plan", ["plan", "gpt2", "h100:8"])
_MOST_QUESTIONS = 2_000  # of one process, which is then replaced: nothing it may leak adds up
_START_S = 120.0


class Busy(Exception):
    """More questions at a time than the server takes."""


class TooLong(Exception):
    """A question took longer than it may."""


class _Worker:
    """A process and the line to it."""

    def __init__(self) -> None:
        self.pipe, other = _SPAWN.Pipe()
        self.process = _SPAWN.Process(target=_serve, args=(other,), daemon=True)
        self.process.start()
        other.close()
        self.answered = 0
        self.ready = False

    def ask(
        self, question: tuple[str, Sequence[str], Mapping[str, Any]], within_s: float
    ) -> tuple[int, bytes]:
        """The answer, or TooLong; a worker that failed so is of no more use."""
        if not self.ready:
            if not self.pipe.poll(_START_S) or self.pipe.recv() != "ready":
                raise TooLong
            self.ready = True
        self.pipe.send(question)
        if not self.pipe.poll(within_s):
            raise TooLong
        self.answered += 1
        status, body = self.pipe.recv()
        return int(status), bytes(body)

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        self.process.kill()
        self.process.join(5)
        self.pipe.close()


def _serve(pipe: Connection) -> None:
    """Answer until the line is closed."""
    import os
    import signal
    import tempfile

    from trainwright.web.answering import answer

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server ends it
    os.chdir(tempfile.mkdtemp(prefix="trainwright-"))  # where no name is that of a file
    answer(_WARM[0], _WARM[1], {})
    pipe.send("ready")
    while True:
        try:
            kind, arguments, files = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            pipe.send(answer(kind, arguments, files))
        except Exception as error:  # a fault of ours: told as such, and the worker lives
            pipe.send((500, f'{{"error":"a fault of the server: {type(error).__name__}"}}'.encode()))


class Workers:
    """A pool of workers, and the answers given lately."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._idle: asyncio.LifoQueue[_Worker] = asyncio.LifoQueue()
        self._all: list[_Worker] = []
        self._waiting = 0
        self._kept: OrderedDict[str, tuple[int, bytes]] = OrderedDict()
        self._kept_bytes = 0
        self._under_way: dict[str, asyncio.Future[tuple[int, bytes]]] = {}

    def start(self) -> None:
        """Start all processes; they warm up by themselves."""
        for _ in range(self._settings.workers):
            self._add()

    def stop(self) -> None:
        """End all processes."""
        for worker in self._all:
            worker.stop()
        self._all.clear()

    async def ask(self, kind: str, arguments: Sequence[str], files: Mapping[str, Any]) -> tuple[int, bytes]:
        """An answer: one that is kept, one that another asks for just now, or a new one."""
        key = repr((kind, arguments, files))
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        if key in self._under_way:
            return await asyncio.shield(self._under_way[key])
        task = asyncio.ensure_future(self._new(key, (kind, arguments, files)))
        self._under_way[key] = task
        task.add_done_callback(lambda done: self._forget(key, done))
        return await asyncio.shield(task)

    def _forget(self, key: str, done: "asyncio.Future[tuple[int, bytes]]") -> None:
        self._under_way.pop(key, None)
        if not done.cancelled():
            done.exception()  # whoever waits has it

    async def _new(
        self, key: str, question: tuple[str, Sequence[str], Mapping[str, Any]]
    ) -> tuple[int, bytes]:
        if self._waiting >= self._settings.most_waiting:
            raise Busy
        self._waiting += 1
        try:
            result = await self._ask(question)
        finally:
            self._waiting -= 1
        self._keep(key, result)
        return result

    async def _ask(self, question: tuple[str, Sequence[str], Mapping[str, Any]]) -> tuple[int, bytes]:
        worker = await self._idle.get()
        try:
            result = await asyncio.to_thread(worker.ask, question, self._settings.answer_s)
        except (TooLong, EOFError, OSError) as error:
            await asyncio.to_thread(self._replace, worker)
            raise TooLong from error
        if worker.answered >= _MOST_QUESTIONS:
            await asyncio.to_thread(self._replace, worker)
        else:
            self._idle.put_nowait(worker)
        return result

    def _add(self) -> None:
        worker = _Worker()
        self._all.append(worker)
        self._idle.put_nowait(worker)

    def _replace(self, worker: _Worker) -> None:
        worker.stop()
        self._all.remove(worker)
        self._add()

    def _keep(self, key: str, result: tuple[int, bytes]) -> None:
        size = len(key) + len(result[1])
        if result[0] == 500 or size > self._settings.cache_bytes // 8:
            return
        self._kept[key] = result
        self._kept_bytes += size
        while self._kept_bytes > self._settings.cache_bytes:
            old, (_, body) = self._kept.popitem(last=False)
            self._kept_bytes -= len(old) + len(body)
