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
WAIT_MS = 120_000  # a busy machine is slow, not broken


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
    assert process.wait(30) in (0, -15)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's chromium."""
    playwright = pytest.importorskip("playwright.sync_api")
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium: tests/web/chromium.sh installs it")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots are left."""
    folder = Path(os.environ.get("SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
