"""Processes are started also after the fork server was killed."""

import multiprocessing
import os
import signal
import time
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess

import pytest

from trainwright.errors import TrainwrightError
from trainwright.runtime import fork_server
from trainwright.runtime.fork_server import start_again


def test_a_server_that_refuses_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    monkeypatch.setattr(fork_server.time, "sleep", asked.append)

    def start() -> str:
        if len(asked) < 2:
            raise ConnectionRefusedError
        return "started"

    assert start_again(start) == "started"
    assert len(asked) == 2


def test_a_server_that_cannot_be_reached_is_an_error_of_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server.time, "sleep", lambda _: None)

    def start() -> None:
        raise ConnectionRefusedError

    with pytest.raises(TrainwrightError, match=r"fork server: was killed.*start the run again"):
        start_again(start)


def test_a_process_is_started_after_its_server_was_killed() -> None:
    context = multiprocessing.get_context("forkserver")

    def start() -> BaseProcess:
        process = context.Process(target=time.sleep, args=(0.0,))
        process.start()
        return process

    start_again(start).join(30)
    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)  # type: ignore[attr-defined]
    process = start_again(start)
    process.join(30)
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
    assert process.exitcode == 0
