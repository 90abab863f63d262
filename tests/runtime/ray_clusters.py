"""Ray clusters of two cores on this machine, with a home directory of their own."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_START_S = 300.0
_END_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RayCluster:
    """A cluster that was started for tests."""

    address: str
    folder: str  # that Ray keeps its files in, by which its processes are known

    def working_on(self, task: str) -> Iterator[int]:
        """Processes of this cluster that run a task now; those of others on this machine are left out."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if not path.read_bytes().startswith(f"ray::{task}".encode()):
                    continue
                parent = (path.parent / "stat").read_text().rpartition(")")[2].split()[1]
                if self.folder in Path(f"/proc/{parent}/cmdline").read_text():
                    yield int(path.parent.name)
            except OSError:
                continue


@contextmanager
def started_cluster(environment: Mapping[str, str]) -> Iterator[RayCluster]:
    """A cluster that is started with these variables, and nothing of it left afterwards."""
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # Ray's sockets need a short path
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    said = Path(folder) / "said.txt"
    command = [
        str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", f"--port={port}",
        "--num-cpus=2", "--include-dashboard=false", "--node-ip-address=127.0.0.1",
        "--object-store-memory=100000000", "--disable-usage-stats", f"--temp-dir={folder}/ray",
    ]  # fmt: skip
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    with said.open("w") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True, env=kept | {**environment}
        )
    try:
        _wait_for_words(process, said, "Ray runtime started")
        yield RayCluster(address=f"127.0.0.1:{port}", folder=folder)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(_END_S)
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for_words(process: "subprocess.Popen[bytes]", said: Path, words: str) -> None:
    until_s = time.monotonic() + _START_S
    while words not in (text := said.read_text()):
        assert process.poll() is None, f"Ray ended: {text}"
        assert time.monotonic() < until_s, f"Ray did not start: {text}"
        time.sleep(0.1)
