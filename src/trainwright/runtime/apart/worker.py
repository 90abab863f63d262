"""One worker of a run under an algorithm: it joins one group after another, until the run ends."""

import gc
import os
import sys
import time
import traceback
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from trainwright.algorithm.meeting import survives
from trainwright.errors import TrainwrightError
from trainwright.runtime.apart.connections import hang_up, open_sockets
from trainwright.runtime.apart.job import Job
from trainwright.runtime.apart.regroup import Memory
from trainwright.runtime.apart.session import Session
from trainwright.runtime.metrics import Metrics
from trainwright.runtime.notice import Notice
from trainwright.runtime.process import BAD_INPUT, BROKEN, LOST, is_lost_peer
from trainwright.runtime.progress import Progress
from trainwright.runtime.state_file import save_values

_LOOK_S = 0.05


def run_worker(build: Callable[[], Job], name: int, port: int, first: int, *, restarted: bool) -> int:
    """Do a worker's part of a run; `first` is the group that it is to join at first. The exit code."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    notice = Notice()
    notice.listen()
    store = TCPStore("localhost", port, is_master=False)
    try:
        return _run(build(), name, store, first, notice, restarted)
    except TrainwrightError as error:
        _say_once(store, f"trainwright: {error}")
        return BAD_INPUT
    except Exception as error:
        if is_lost_peer(error):
            return LOST
        _say_once(store, traceback.format_exc())
        return BROKEN


def _run(job: Job, name: int, store: Store, group: int, notice: Notice, restarted: bool) -> int:
    memory = Memory()
    finished: bool | None
    before = open_sockets()
    while True:
        group, members = _assemble(store, group, name, job.timeout_s)
        if name not in members:
            return LOST
        try:
            finished, values = _join(
                job, members.index(name), members, store, group, notice, memory, restarted
            )
        except Exception as error:
            if not (is_lost_peer(error) and survives(job.algorithm)):
                raise
            finished = None
        if finished is None:
            _leave({number: name for number, name in open_sockets().items() if before.get(number) != name})
            group += 1
            continue
        if members[0] == name:
            _end(job, finished, values, memory)
        dist.destroy_process_group()
        return 0


def _join(
    job: Job, rank: int, members: list[int], store: Store, group: int, notice: Notice, memory: Memory,
    restarted: bool,
) -> tuple[bool, dict[str, torch.Tensor]]:  # fmt: skip
    dist.init_process_group(
        "gloo", store=PrefixStore(f"group/{group}", store), rank=rank, world_size=len(members),
        timeout=timedelta(seconds=job.timeout_s),
    )  # fmt: skip
    session = Session(
        job=job, notice=notice, memory=memory, restarted=restarted,
        metrics=Metrics(path=job.keeping.metrics, board=job.keeping.tensorboard),
        progress=Progress(steps=job.recipe.steps),
    )  # fmt: skip
    found = session.run()
    dist.barrier()  # no one leaves before all have what they came for
    return found


def _leave(connections: dict[int, str]) -> None:
    """End all connections with the others, so that those see it too."""
    hang_up(connections)
    if dist.is_initialized():
        dist.destroy_process_group()
    gc.collect()


def _end(job: Job, finished: bool, values: dict[str, torch.Tensor], memory: Memory) -> None:
    """What the first worker does last."""
    if finished and job.keeping.export:
        save_values(job.keeping.export, job.network.learner.stored(values))
    if not finished:
        how = "; --resume continues" if job.keeping.checkpoints else ", nothing was kept: state --checkpoint"
        print(f"stopped after step {memory.last} of {job.recipe.steps}{how}", flush=True)


def _say_once(store: Store, text: str) -> None:
    """Print a message, unless another worker has printed one."""
    if store.add("said", 1) == 1:
        print(text, file=sys.stderr, flush=True)


def _assemble(store: Store, group: int, name: int, timeout_s: float) -> tuple[int, list[int]]:
    """The first group from this one on whose members are all there: one may die on the way to it."""
    end_s = time.monotonic() + timeout_s
    while True:
        members = _members(store, group, timeout_s)
        store.set(f"there/{group}/{name}", "")
        there = [f"there/{group}/{each}" for each in members]
        while name in members and not store.check(there) and not store.check([f"members/{group + 1}"]):
            if time.monotonic() > end_s:
                raise RuntimeError("timed out: not all workers have come")
            time.sleep(_LOOK_S)
        if name not in members or store.check(there):
            return group, members
        group += 1


def _members(store: Store, group: int, timeout_s: float) -> list[int]:
    """Who is in a group, once its launcher has said so."""
    end_s = time.monotonic() + timeout_s
    key = f"members/{group}"
    while not store.check([key]):
        if time.monotonic() > end_s:
            raise RuntimeError("timed out: no word from the launcher")
        time.sleep(_LOOK_S)
    return [int(each) for each in store.get(key).decode().split(",")]
