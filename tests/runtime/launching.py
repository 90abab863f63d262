"""Runs as users start them, for tests that end them in unkind ways."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
TINY = """
layers = 2
hidden = 16
heads = 4
ffn = 32
vocab = 256
positions = 32
norm = "layer"
"""
COMMAND = ("-m", "trainwright.cli.main", "run", "--seq", "16")
HELD = ("-m", "tests.runtime.held_run", "run", "--seq", "16")  # waits where `hold` says
LIMIT_S = 500


def environment() -> dict[str, str]:
    """This one, without what a torchrun around the tests has left in it."""
    kept = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    return kept | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OMP_NUM_THREADS": "1"}


TORCHRUN = (sys.executable, "-W", "ignore", "-m", "torch.distributed.run")


def start_torchrun(count: int, *arguments: str) -> subprocess.Popen[str]:
    """So many processes under torchrun, which go on."""
    return _popen([*TORCHRUN, "--standalone", f"--nproc-per-node={count}", *arguments])


def start_nodes(most: int, *arguments: str) -> list[subprocess.Popen[str]]:
    """Torchrun as on so many machines with a process each, of which one is enough; they meet at the first."""
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
    patience = "last_call_timeout=10,keep_alive_interval=1,keep_alive_max_attempt=3"  # seconds, and how often
    command = (
        *TORCHRUN, f"--nnodes=1:{most}", "--nproc-per-node=1", "--max-restarts=3", "--rdzv-backend=c10d",
        f"--rdzv-endpoint=localhost:{port}", f"--rdzv-conf={patience}",
    )  # fmt: skip
    nodes = [_popen([*command, *arguments])]
    while not _listens(port) and nodes[0].poll() is None:
        time.sleep(0.1)
    return nodes + [_popen([*command, *arguments]) for _ in range(most - 1)]


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("localhost", port)):
            return True
    except OSError:
        return False


def torchrun(count: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """So many processes under torchrun, when they have ended."""
    return finish(start_torchrun(count, *arguments))


def _popen(command: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )


def build_model(directory: Path, text: str = TINY) -> str:
    """The file of a small model."""
    path = directory / "tiny.toml"
    path.write_text(text)
    return str(path)


def apart(directory: Path, name: str, algorithm: str, workers: int, steps: int) -> list[str]:
    """Arguments of a run of a small model by an algorithm, with a checkpoint every eighth step."""
    return [
        build_model(directory), f"dp{workers}", "--algorithm", algorithm, "--steps", str(steps),
        "--batch", "12", "--rate", "1e-2", "--every", "8", "--checkpoint", str(directory / name),
        "--metrics", str(directory / f"{name}.jsonl"),
    ]  # fmt: skip


def start(*arguments: str, before: Sequence[str] = ()) -> subprocess.Popen[str]:
    """`trainwright run`, which goes on; `before` is a command that starts it."""
    return _popen([*before, sys.executable, *COMMAND, *arguments])


def start_held(*arguments: str) -> subprocess.Popen[str]:
    """`trainwright run`, which waits where `hold` says."""
    return _popen([sys.executable, *HELD, *arguments])


def hold_file(path: Path) -> Path:
    """The file that holds a run that writes to a path."""
    return path.with_name(path.name + ".hold")


def hold(path: Path, step: int = 0) -> None:
    """Have a run that writes metrics to a path wait after a step, or one that writes checkpoints there."""
    unnamed = path.with_name(path.name + ".hold-next")
    unnamed.write_text(str(step))
    unnamed.rename(hold_file(path))


def release(path: Path) -> None:
    """Let a run go on that was held by a path."""
    hold_file(path).unlink()


def finish(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    """A run that has ended by itself."""
    try:
        stdout, stderr = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def run(*arguments: str, before: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """`trainwright run`, when it has ended."""
    return finish(start(*arguments, before=before))


def losses(metrics: Path) -> list[tuple[int, float]]:
    """The loss of every step, as it was written."""
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [(line["step"], line["loss"]) for line in lines if "loss" in line]


def steps_taken(metrics: Path) -> int:
    """The last step of which there are numbers."""
    try:
        return max((step for step, _ in losses(metrics)), default=0)
    except (OSError, ValueError):  # not there, or in the middle of a line
        return 0


def wait_for_step(process: subprocess.Popen[str], metrics: Path, step: int) -> None:
    """Return once a step is taken, or the run has ended."""
    end_s = time.monotonic() + LIMIT_S
    while steps_taken(metrics) < step and process.poll() is None:
        assert time.monotonic() < end_s, f"step {step} is not reached"
        time.sleep(0.01)


def wait_until(process: subprocess.Popen[str], met: Callable[[], bool]) -> None:
    """Return once something is so, or the run has ended."""
    while not met() and process.poll() is None:
        time.sleep(0.01)


def worker_counts(metrics: Path) -> list[int]:
    """How many workers took part, one number for every change; as far as the steps are written."""
    found: list[int] = []
    for line in metrics.read_text().splitlines() if metrics.exists() else ():
        with suppress(ValueError):  # in the middle of a line
            count = json.loads(line).get("workers")
            if count and found[-1:] != [count]:
                found.append(count)
    return found


def wait_for_words(process: subprocess.Popen[str], words: str) -> str:
    """What a run has said on its standard error until it said this, or ended."""
    said = ""
    assert process.stderr is not None
    while words not in said:
        line = process.stderr.readline()
        if not line:
            break
        said += line
    return said


def ranks_of(process: subprocess.Popen[str]) -> Sequence[int]:
    """The processes of a run: its launcher has a child that forks them."""
    return sorted(rank for child in children(process.pid) for rank in children(child))


def children(parent: int) -> Iterator[int]:
    """The processes that one has started and that live."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent and fields[0] != "Z":
            yield int(path.parent.name)


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process, if it is still there."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def wait_until_gone(pids: Sequence[int], limit_s: float = LIMIT_S) -> bool:
    """Whether all of some processes have ended in time."""
    end_s = time.monotonic() + limit_s
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        if time.monotonic() > end_s:
            return False
        time.sleep(0.05)
    return True
