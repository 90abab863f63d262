"""A real server on loopback, and a real browser."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
WAIT_MS = 300_000  # a busy machine is slow, not broken


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """Where a server listens, as a user starts it."""
    words = [sys.executable, "-m", "trainwright.cli.main", "serve", "--port", "0", "--workers", "2"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=os.environ)
    assert process.stdout
    found = re.search(r"http://[^ ]+", process.stdout.readline())
    assert found
    yield found[0].rstrip("/")
    process.terminate()
    assert process.wait(WAIT_MS / 1000) in (0, -15)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's chromium; of one file of tests, as its loop keeps others from running loops of their own."""
    playwright = pytest.importorskip("playwright.sync_api")
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium: tests/web/chromium.sh installs it")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """A page that must stay without errors, and ask nobody but the server."""
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    opened = context.new_page()
    opened.set_default_timeout(WAIT_MS)
    errors: list[str] = []
    opened.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: errors.append(str(error)))
    requests: list[str] = []
    opened.on("request", lambda request: requests.append(request.url))
    opened.requests = requests
    yield opened
    context.close()
    refused = [each for each in errors if "status of 4" not in each]  # what the server refuses is shown
    assert not refused
    assert all(each.startswith((address, "data:", "blob:")) for each in requests)


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots are left."""
    folder = Path(os.environ.get("SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
