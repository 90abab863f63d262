"""Parts made on a Ray cluster: the same code as here, so the same bytes."""

import importlib
import os
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from trainwright.errors import BadInput, TrainwrightError
from trainwright.sweep.dataset import UnfinishedSweep
from trainwright.sweep.identity import program_digest, versions
from trainwright.sweep.part import Made, Maker
from trainwright.sweep.types import Sweep

HOW_TO_GET = "pip install 'trainwright[ray]'"
_POLL_S = 0.5
_CONNECT_S = 5.0
_AHEAD = 3  # tasks for each core that are asked for before the first is taken
_makers: dict[str, Maker] = {}  # of a worker process: what it has learnt of a sweep serves its next task


def make_on_ray(
    sweep: Sweep, size: int, numbers: Sequence[int], address: str, stop: Callable[[], bool]
) -> Iterator[Made]:
    """Parts in order, made by the tasks of a Ray cluster; a task whose worker ends is run again by Ray."""
    ray = _load_ray()
    _connect(ray, address)
    try:
        yield from _in_order(ray, (sweep, size), numbers, stop)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        raise (cause if isinstance(cause, TrainwrightError) else _failed(error)) from None
    except ray.exceptions.RayError as error:
        raise _failed(error) from None
    finally:
        ray.shutdown()


def _in_order(ray: Any, subject: tuple[Sweep, int], numbers: Sequence[int], stop: Callable[[], bool]) -> Any:
    make = ray.remote(num_cpus=1, max_retries=-1)(make_part)
    known, identity = ray.put(subject), (program_digest(), dict(versions()))
    most = _AHEAD * max(int(ray.cluster_resources().get("CPU", 1)), 1)
    waiting: deque[Any] = deque()
    rest = iter(numbers)
    for _ in range(len(numbers)):
        while len(waiting) < most and (number := next(rest, None)) is not None:
            waiting.append(make.remote(known, identity, number))
        first = waiting.popleft()
        while not ray.wait([first], timeout=_POLL_S)[0]:
            if stop():
                return
        if stop():
            return
        yield ray.get(first)


def make_part(subject: tuple[Sweep, int], identity: tuple[str, dict[str, str]], number: int) -> Made:
    """One part, by whichever machine; raises if its program is another one."""
    mine = (program_digest(), dict(versions()))
    if mine != identity:
        raise BadInput(
            "Ray worker", os.uname().nodename, f"has {mine[1]}, and the sweep was started with {identity[1]}",
            "install the same trainwright, numpy and pyarrow on every machine",
        )  # fmt: skip
    key = repr(identity) + str(id(subject)) + subject[0].name
    if key not in _makers:
        _makers.clear()
        _makers[key] = Maker(*subject)
    return _makers[key].make(number)


def _load_ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise BadInput("--ray", "ray", "is not installed", HOW_TO_GET) from None


def _connect(ray: Any, address: str) -> None:
    """Join a cluster; `local` starts one on this machine, which ends with the sweep."""
    _check_reachable(address)
    paths = [str(Path(each).resolve()) for each in sys.path if each and Path(each).exists()]
    environment = {"env_vars": {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}}
    try:
        ray.init(
            address=address, runtime_env=environment, log_to_driver=False, configure_logging=False,
            **({"include_dashboard": False} if address == "local" else {}),
        )  # fmt: skip
    except (ConnectionError, OSError, ValueError, RuntimeError, TimeoutError) as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise BadInput(
            "--ray", address, f"cannot be reached ({reason})", "check that Ray runs there"
        ) from None


def _check_reachable(address: str) -> None:
    """Raise at once if nothing listens at HOST:PORT; Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(
            "--ray", address, f"cannot be reached ({reason})", "check that Ray runs there"
        ) from None


def _failed(error: Exception) -> UnfinishedSweep:
    reason = str(error).strip().splitlines()[-1][:300] if str(error).strip() else type(error).__name__
    return UnfinishedSweep(
        f"sweep on Ray: {reason}; what is finished stays: run the same command again, or without --ray"
    )
