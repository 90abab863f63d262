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
        assert process.wait(30) in (0, -15)


def _worker(server: int) -> int:
    listed = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(server)], capture_output=True, text=True
    )
    (pid,) = [int(line.split()[0]) for line in listed.stdout.splitlines() if "spawn_main" in line]
    return pid


def test_a_page_tells_the_place_in_the_queue_and_then_the_answer(
    browser: Any, server: tuple[str, int]
) -> None:
    address, worker = server
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(120_000)
    page.goto(f"{address}/plan?model=gpt2&count=8")
    page.wait_for_selector("#answer:not(.busy) .fact")
    os.kill(worker, signal.SIGSTOP)
    try:
        body = json.dumps({"model": "gpt2", "count": 16}).encode()
        question = Request(f"{address}/api/plan", body, {"content-type": "application/json"})
        other = threading.Thread(target=lambda: urlopen(question).close())
        other.start()
        page.wait_for_timeout(300)  # the worker has the other's
        page.fill('input[name="count"]', "4")
        page.click("#go")
        page.locator("#status", has_text="Waiting: place 1 in the queue").wait_for()
    finally:
        os.kill(worker, signal.SIGCONT)
    page.locator("#command", has_text=":4 ").wait_for()
    assert page.inner_text("#status") == ""
    other.join(60)
    context.close()
