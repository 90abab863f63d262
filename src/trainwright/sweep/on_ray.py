"""Parts made on a Ray cluster: the same code as here, so the same bytes."""

import importlib
import os
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from trainwright.errors import BadInput, TrainwrightError
from trainwright.runtime.restored_handlers import restored_handlers
from trainwright.sweep.dataset import UnfinishedSweep
from trainwright.sweep.identity import program_digest, sweep_digest, versions
from trainwright.sweep.part import Made, Maker
from trainwright.sweep.ray_token import token_authentication
from trainwright.sweep.types import Sweep

HOW_TO_GET = "pip install 'trainwright[ray]'"
_POLL_S = 0.5
_CONNECT_S = 5.0
_AHEAD = 3  # tasks for each core that are asked for before the first is taken
Identity = tuple[str, ...]
_makers: dict[Identity, Maker] = {}  # of a worker process: what it has learnt of a sweep serves its next task


def make_on_ray(
    sweep: Sweep, size: int, numbers: Sequence[int], address: str, stop: Callable[[], bool]
) -> Iterator[Made]:
    """Parts in order, made by the tasks of a Ray cluster; a task whose worker ends is run again by Ray."""
    with token_authentication(address), restored_handlers():  # Ray sets one for SIGTERM, and leaves it
        ray = _load_ray()
        _connect(ray, address)
        try:
            yield from _in_order(ray, (sweep, size), numbers, stop)
        except ray.exceptions.RayError as error:
            raise _failed(error) from None
        finally:
            ray.shutdown()


def _in_order(ray: Any, subject: tuple[Sweep, int], numbers: Sequence[int], stop: Callable[[], bool]) -> Any:
    make = ray.remote(num_cpus=1, max_retries=-1)(make_part)
    known, identity = ray.put(subject), _identity(subject[0])
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
        made = ray.get(first)
        if isinstance(made, str):
            raise TrainwrightError(made)
        yield made


def make_part(subject: tuple[Sweep, int], identity: Identity, number: int) -> Made | str:
    """One part, by whichever machine; or what is wrong, if it is the user's to mend."""
    try:
        return _maker(subject, identity).make(number)
    except TrainwrightError as error:
        return str(error)


def _maker(subject: tuple[Sweep, int], identity: Identity) -> Maker:
    """What makes parts of a sweep in this process; raises if its program is not the one that asks."""
    if identity not in _makers:
        mine = _identity(subject[0])
        if mine != identity:
            raise BadInput(
                "Ray worker", os.uname().nodename, f"has {mine}, and the sweep was started with {identity}",
                "install the same trainwright, numpy and pyarrow on every machine",
            )  # fmt: skip
        _makers.clear()
        _makers[identity] = Maker(*subject)
    return _makers[identity]


def _identity(sweep: Sweep) -> Identity:
    words = (f"{name} {value}" for name, value in versions().items())
    return (*words, f"code {program_digest()[:12]}", f"sweep {sweep_digest(sweep)}")


def check_ray() -> None:
    """Raise if Ray is not installed; it is imported later, once the environment is as it needs it."""
    if find_spec("ray") is None:
        raise BadInput("--ray", "ray", "is not installed", HOW_TO_GET)


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
    except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise BadInput(
            "--ray", address, f"cannot be reached ({reason})",
            "check that Ray runs there; if it wants a token, put it in ~/.ray/auth_token or RAY_AUTH_TOKEN",
        ) from None  # fmt: skip


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
