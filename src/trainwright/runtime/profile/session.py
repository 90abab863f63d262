"""Measuring a machine with processes of its own: within a time, and keeping what there is if interrupted."""

import os
import platform
import queue
import signal
import socket
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.queues import Queue
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from trainwright.cost.profile import Collective, Kernel, Profile
from trainwright.errors import BadInput
from trainwright.runtime.profile.tasks import (
    Bench,
    Found,
    Task,
    block_of,
    collective_tasks,
    first_tasks,
    grid_tasks,
)

ReportProgress = Callable[[int, int, str], None]  # done, of how many, and what was measured
_PATIENCE_S = 120.0  # for one task, before its processes are given up
_JOIN_S = 10.0  # a killed process ends at once, unless the kernel or a driver keeps it


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Tasks that so many processes measure one after another."""

    processes: int
    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was found, of how much, and why it ended."""

    profile: Profile
    planned: int
    ended: str  # "" if everything was measured


def plan_rounds(kind: str, processes: Sequence[int]) -> tuple[Round, ...]:
    """The layer and collectives first, then collectives of other counts, then more shapes."""
    main, *others = processes
    rounds = [Round(processes=main, tasks=tuple(first_tasks(kind, main)))]
    rounds += [
        Round(processes=each, tasks=tuple(collective_tasks(kind, each))) for each in others if each > 1
    ]
    return (*rounds, Round(processes=main, tasks=tuple(grid_tasks(kind))))


def measure_rounds(
    rounds: Sequence[Round], kind: str, threads: int, budget_s: float, report_progress: ReportProgress
) -> Measured:
    """Measure until all is done, the time is over, or the user interrupts; what was found is kept."""
    deadline_s, planned = time.monotonic() + budget_s, sum(len(each.tasks) for each in rounds)
    found: list[Found] = []
    ended, done = "", 0
    try:
        for each in rounds:
            for name, result in _results(each, kind, threads, deadline_s):
                found.append(result)
                done += 1
                report_progress(done, planned, name)
            if time.monotonic() >= deadline_s and done < planned:
                ended = "the time was over"
                break
    except KeyboardInterrupt:
        ended = "it was interrupted"
    except BadInput as error:
        if not any(isinstance(each, Kernel) for each in found):
            raise
        ended = f"{error.thing} {error.rule}"
    missing = _missing(rounds, found)
    return Measured(
        profile=build_profile(found, kind, rounds[0].processes, threads, missing),
        planned=planned,
        ended=ended,
    )


def build_profile(
    found: Iterable[Found], kind: str, processes: int, threads: int, missing: tuple[str, ...]
) -> Profile:
    """A profile of what was found, on this machine and today."""
    listed = list(found)
    numbers = dict(each for each in listed if isinstance(each, tuple))
    return Profile(
        dtype="fp32" if kind == "cpu" else "bf16", software=f"PyTorch {torch.__version__}",
        measured=f"{time.strftime('%Y-%m-%d')}, {_hardware(kind)}", source="trainwright profile",
        kernels=tuple(each for each in listed if isinstance(each, Kernel)),
        collectives=tuple(each for each in listed if isinstance(each, Collective)),
        block=block_of(kind), threads=threads, processes=processes, operator_s=numbers.get("operator_s", 0.0),
        step_s=numbers.get("step_s", 0.0), interference=numbers.get("interference", 0.0), missing=missing,
    )  # fmt: skip


def device_kind() -> str:
    """What there is to measure: cpu, cuda, or another accelerator that PyTorch knows."""
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return found.type if found is not None else "cpu"


def device_count() -> int:
    """Accelerators of this machine."""
    return int(torch.accelerator.device_count())


def memory_bytes(kind: str, processes: int) -> float:
    """Memory of one device: an accelerator's own, or a process's share of the machine's."""
    if kind != "cpu":
        return float(torch.get_device_module(kind).mem_get_info()[1])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / max(processes, 1)


def _hardware(kind: str) -> str:
    if kind != "cpu":
        return str(torch.get_device_module(kind).get_device_name(0))
    return f"{platform.machine()} CPU, {os.cpu_count()} cores"


def _missing(rounds: Sequence[Round], found: Sequence[Found]) -> tuple[str, ...]:
    """Works and kinds of which not all was measured."""
    have = {(each.work, each.sizes) for each in found if isinstance(each, Kernel)}
    have |= {(each.kind, (each.size_bytes, each.members)) for each in found if isinstance(each, Collective)}
    have |= {(each[0].removesuffix("_s"), ()) for each in found if isinstance(each, tuple)}
    lacking = [
        task
        for each in rounds
        for task in each.tasks
        if (task.work, (*task.sizes, task.members) if task.members else task.sizes) not in have
    ]
    known = {work for work, _ in have}
    some = {task.work for task in lacking if task.work in known and not task.members}
    names = [
        f"{task.work} of {task.members}" if task.members else task.work
        for task in lacking
        if task.members or task.work not in some
    ]
    more = [f"further shapes of {len(some)} kernels"] if some else []
    return (*dict.fromkeys(names), *more)


def _results(each: Round, kind: str, threads: int, deadline_s: float) -> Iterable[tuple[str, Found]]:
    """What the processes of a round find, as they find it; they end with the round or with the time."""
    context = mp.get_context("spawn")
    said: Queue[Any] = context.Queue()
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    processes = [
        context.Process(target=_work, args=(rank, each, kind, threads, port, said), daemon=True)
        for rank in range(each.processes)
    ]
    for process in processes:
        process.start()
    try:
        for _ in each.tasks:
            heard = _hear(said, processes, deadline_s)
            if heard is None:
                return
            yield heard
    finally:
        for process in processes:  # which have nothing to save
            process.kill()
        for process in processes:
            process.join(_JOIN_S)


def _hear(said: "Queue[Any]", processes: Sequence[Any], deadline_s: float) -> tuple[str, Found] | None:
    """The next result; None if the time is over."""
    patience_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline_s:
        try:
            name, found = said.get(timeout=0.2)
            return name, found
        except queue.Empty:
            pass
        if any(process.exitcode not in (None, 0) for process in processes) or time.monotonic() > patience_s:
            raise BadInput("profile", "a process", "has failed or hangs", "look at what it said above")
    return None


def _work(rank: int, each: Round, kind: str, threads: int, port: int, said: "Queue[Any]") -> None:
    """One of the processes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process of all decides
    warnings.filterwarnings("ignore")
    torch.set_num_threads(threads)
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "LOCAL_RANK": str(rank)}
    device = torch.device(kind, rank) if kind != "cpu" else torch.device("cpu")
    if kind != "cpu":
        torch.accelerator.set_device_index(rank)
    dist.init_process_group("gloo" if kind == "cpu" else None, rank=rank, world_size=each.processes)
    bench = Bench(device=device, dtype=torch.float32 if kind == "cpu" else torch.bfloat16)
    for task in each.tasks:
        found = bench.measure(task)
        if rank == 0:
            said.put((task.name, found))
    said.close()
    said.join_thread()
    if rank == 0:
        time.sleep(3600)  # until all was heard
