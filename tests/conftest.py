"""How long laws are searched: same examples every time, few enough for every change; more on request.

`TRAINWRIGHT_EXAMPLES=1000 pytest tests/laws` looks harder. Small tensors are computed by one thread, here
and in processes that tests start: more of them only wait for one another. A run after which a device of the
system is no device any more fails: a test has written in its place.
"""

import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ("tests.started_processes",)

settings.register_profile(
    "trainwright",
    max_examples=int(os.environ.get("TRAINWRIGHT_EXAMPLES", "30")),
    deadline=None,
    derandomize="TRAINWRIGHT_EXAMPLES" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("trainwright")


def _is_device(path: Path) -> bool:
    return path.exists() and stat.S_ISCHR(path.stat().st_mode)


DEVICES = tuple(path for path in map(Path, ("/dev/null", "/dev/full", "/dev/zero")) if _is_device(path))


def pytest_sessionfinish(session: pytest.Session) -> None:
    replaced = [str(path) for path in DEVICES if not _is_device(path)]
    if replaced:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print(f"\nFAILED: a test has replaced {', '.join(replaced)} by something that is no device")


_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


@pytest.fixture(autouse=True)
def handlers_are_left_alone() -> Iterator[None]:
    """After a test, handlers are those from before: processes that later tests fork would inherit others.

    A handler of our own that is left fails the test; those that libraries leave are undone.
    """
    before = {number: signal.getsignal(number) for number in _HANDLED}
    yield
    left = {number: signal.getsignal(number) for number in _HANDLED}
    changed = [number for number in _HANDLED if left[number] != before[number]]
    for number in changed:
        signal.signal(number, before[number])
    ours = [number for number in changed if "trainwright" in (getattr(left[number], "__module__", "") or "")]
    assert not ours, "handlers were left behind"


# Files that take longest come first, so that no worker of `make test` is left with one of them at the end.
LONGEST = (
    "runtime/test_faults.py",
    "unit/study/test_subnetworks.py",
    "runtime/test_equality.py",
    "runtime/test_own_module.py",
    "runtime/test_traced_training.py",
    "runtime/test_replaced_workers.py",
    "runtime/test_run.py",
    "runtime/test_sweep_ray.py",
    "runtime/test_profile.py",
    "unit/cli/test_simulate.py",
    "runtime/test_algorithm_run.py",
    "runtime/test_checkpoint.py",
    "laws/test_estimate_laws.py",
    "unit/cli/test_commands.py",
    "unit/cli/test_economy.py",
    "runtime/test_against_torch.py",
    "laws/test_program_laws.py",
)
_FOLDER = Path(__file__).parent


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort files by how long they take; within a file, and among short ones, the order stays."""
    place = {_FOLDER / name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path, len(place)))
