"""A function applied to many items by forked processes that end with the call, whatever they do."""

import multiprocessing
import os
import pickle
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from trainwright.errors import TrainwrightError

Item = TypeVar("Item")
Result = TypeVar("Result")
Answer = tuple[int, Any, Exception | None]  # the index of an item, and its result or what was raised
_JOIN_S = 10.0  # a killed process ends at once, unless the kernel keeps it


class ForkedProcessLost(TrainwrightError):
    """A forked process ended before its work did."""


def forked_map(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """The function of each item, on all cores; processes are forked, so that nothing is copied.

    Inside such a process there are no further ones: items follow each other. A process that dies, and an
    exception in one, end all of them and are raised here.
    """
    count = min(os.cpu_count() or 1, len(items))
    if multiprocessing.current_process().daemon or count < 2:
        return [function(item) for item in items]
    context = multiprocessing.get_context("fork")
    taken = context.Value("q", 0)  # how many items have been taken by a process
    with _ended_processes() as processes:
        pipes: dict[Any, BaseProcess] = {}
        for _ in range(count):
            near, far = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(function, items, taken, far), daemon=True)
            process.start()
            far.close()
            processes.append(process)
            pipes[near] = process
        return _collect(pipes, len(items))


def _collect(pipes: dict[Any, BaseProcess], count: int) -> list[Any]:
    """The results of all items, in their order."""
    found: dict[int, Any] = {}
    while len(found) < count:
        for pipe in wait(list(pipes)):
            assert isinstance(pipe, Connection)
            answer = _receive(pipe)
            if answer is None:
                _check_ended(pipes.pop(pipe))
                continue
            index, found[index], error = answer
            if error is not None:
                raise error
        if not pipes and len(found) < count:
            raise ForkedProcessLost("forked processes ended before all items were computed")
    return [found[index] for index in range(count)]


def _receive(pipe: Connection) -> Answer | None:
    """What a process sends next; None if it has ended."""
    try:
        index, result, error = pipe.recv()
    except (EOFError, ConnectionError):
        return None
    return index, result, error


def _check_ended(process: BaseProcess) -> None:
    """Raise unless a process has ended by itself, with all it took on done."""
    process.join(_JOIN_S)
    if process.exitcode != 0:
        raise ForkedProcessLost(f"a forked process ended with exit code {process.exitcode}")


@contextmanager
def _ended_processes() -> Iterator[list[BaseProcess]]:
    """A list of processes, none of which is left afterwards: they have nothing to save and are killed."""
    processes: list[BaseProcess] = []
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.join(_JOIN_S)


def _work(function: Callable[[Any], Any], items: Sequence[Any], taken: Any, pipe: Connection) -> None:
    """Be one of the processes: take the next item until there is none."""
    _reset_handlers()
    with suppress(BrokenPipeError):  # nobody waits for results any more
        while True:
            with taken.get_lock():
                index, taken.value = taken.value, taken.value + 1
            if index >= len(items):
                return
            pipe.send(_answer(function, items, index))


def _answer(function: Callable[[Any], Any], items: Sequence[Any], index: int) -> Answer:
    try:
        return index, function(items[index]), None
    except Exception as error:
        error.add_note(f"in a forked process:\n{traceback.format_exc()}")
        text = str(error) if isinstance(error, TrainwrightError) else repr(error)
        return index, None, error if _survives_pickling(error) else TrainwrightError(text)


def _survives_pickling(error: Exception) -> bool:
    try:
        return type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:
        return False


def _reset_handlers() -> None:
    """Forget the handlers of the parent, which would act on its behalf; it also decides on an interrupt."""
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
