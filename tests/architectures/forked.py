"""Processes forked from one that has traced a module, so that none of them traces it again."""

import os
import pickle
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from trainwright.errors import TrainwrightError


class ProcessFailed(Exception):
    """A process that raised: `refused` if its message is the user's to read; `text` is the last line."""

    def __init__(self, text: str, *, refused: bool, trace: str = "") -> None:
        super().__init__(text)
        self.text, self.refused, self.trace = text, refused, trace


def run_forked(work: Callable[[int], Any], count: int, timeout_s: float) -> list[Any]:
    """What `work(rank)` returns in each of `count` forked processes that communicate through gloo."""
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory) / "store"

        def entered(rank: int) -> Any:
            dist.init_process_group(
                "gloo", init_method=f"file://{store}", rank=rank, world_size=count,
                timeout=timedelta(seconds=timeout_s),
            )  # fmt: skip
            return work(rank)

        children = [_fork(lambda rank=rank: entered(rank)) for rank in range(count)]  # type: ignore[misc]
        return _collect(children, timeout_s)


def run_alone(work: Callable[[], Any], timeout_s: float) -> Any:
    """What `work()` returns in one forked process, whose memory is given back."""
    return _collect([_fork(work)], timeout_s)[0]


def _fork(work: Callable[[], Any]) -> tuple[int, int]:
    """The id of a child process, and the pipe through which its answer comes."""
    near, far = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(far)
        return pid, near
    try:
        os.close(near)
        os.setpgid(0, 0)
        torch.set_num_threads(1)
        _answer(far, _outcome(work))
    finally:
        os._exit(0)


def _outcome(work: Callable[[], Any]) -> tuple[str, Any, str]:
    try:
        return "done", work(), ""
    except TrainwrightError as error:
        return "refused", str(error), ""
    except ProcessFailed as error:
        return ("refused" if error.refused else "failed"), error.text, error.trace
    except BaseException as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return "failed", f"{type(error).__name__}: {lines[0] if lines else ''}"[:300], traceback.format_exc()


def _answer(pipe: int, outcome: tuple[str, Any, str]) -> None:
    with os.fdopen(pipe, "wb") as file:
        file.write(pickle.dumps(outcome))


def _collect(children: list[tuple[int, int]], timeout_s: float) -> list[Any]:
    """The answers of all; as soon as one fails for a reason of its own, the others are ended."""
    answers: dict[int, tuple[str, Any, str]] = {}
    waiting = {pipe: (number, bytearray()) for number, (_, pipe) in enumerate(children)}
    end_s = time.monotonic() + timeout_s
    try:
        while waiting and not any(kind != "done" for kind, _, _ in answers.values()):
            ready, _, _ = select.select(list(waiting), [], [], max(end_s - time.monotonic(), 0))
            if not ready:
                raise ProcessFailed(f"no answer within {timeout_s:g} s", refused=False)
            for pipe in ready:
                number, data = waiting[pipe]
                part = os.read(pipe, 1 << 20)
                data.extend(part)
                if not part:
                    del waiting[pipe]
                    answers[number] = pickle.loads(bytes(data)) if data else ("failed", "a process died", "")
    finally:
        for pid, pipe in children:
            os.close(pipe)
            _end(pid)
    return [_value(answers, number) for number in range(len(children))]


def _value(answers: dict[int, tuple[str, Any, str]], number: int) -> Any:
    failed = [(kind, value, trace) for kind, value, trace in answers.values() if kind != "done"]
    if failed:
        kind, text, trace = failed[0]
        raise ProcessFailed(text, refused=kind == "refused", trace=trace)
    return answers[number][1]


def _end(pid: int) -> None:
    """End a child and its own children, if it has not ended, and take its status."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
