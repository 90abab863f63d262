"""A user who must wait is told so: the place in the queue, while the server's workers are with others."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="needs Linux's list of processes"
)


@pytest.fixture
def server() -> Iterator[tuple[str, int]]:
    """A server with one worker: its address, and the worker's process."""
    words = [sys.executable, "-m", "trainwright.cli.main", "serve", "--port", "0", "--workers", "1"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=os.environ)
    try:
        assert process.stdout
        found = re.search(r"http://[^ ]+", process.stdout.readline())
        assert found
        address = found[0].rstrip("/")
        urlopen(f"{address}/api/catalog").close()  # so the worker is there
        yield address, _worker(process.pid)
    finally:
        process.terminate()
        assert process.wait(300) in (0, -15)


def _worker(server: int) -> int:
    listed = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(server)], capture_output=True, text=True
    )
    (pid,) = [int(line.split()[0]) for line in listed.stdout.splitlines() if "spawn_main" in line]
    return pid


def ask(address: str, count: int, ticket: str) -> None:
    """Ask for a plan on so many devices, and wait for the answer."""
    body = json.dumps({"model": "gpt2", "count": count}).encode()
    headers = {"content-type": "application/json", "x-ticket": ticket}
    urlopen(Request(f"{address}/api/plan", body, headers)).close()


def place(address: str, ticket: str) -> int:
    """The place in the queue of a question; 0 if it is not there."""
    with urlopen(f"{address}/api/waiting/{ticket}") as answer:
        return int(json.load(answer)["place"])


def test_a_page_tells_the_place_in_the_queue_and_then_the_answer(
    browser: Any, server: tuple[str, int]
) -> None:
    address, worker = server
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(300_000)
    page.goto(f"{address}/plan?model=gpt2&count=8")
    page.wait_for_selector("#answer:not(.busy) .fact")
    os.kill(worker, signal.SIGSTOP)
    try:
        others = [
            threading.Thread(target=ask, args=(address, count, f"others-{count}")) for count in (16, 32)
        ]
        for other in others:
            other.start()
        while sorted(place(address, f"others-{count}") for count in (16, 32)) != [0, 1]:
            page.wait_for_timeout(100)  # until the worker has one of them, and the other waits
        page.fill('input[name="count"]', "4")
        page.click("#go")
        page.locator("#status", has_text="Waiting: place 2 in the queue").wait_for()
    finally:
        os.kill(worker, signal.SIGCONT)
    page.locator("#command", has_text=":4 ").wait_for()
    assert page.inner_text("#status") == ""
    for other in others:
        other.join(300)
    context.close()
