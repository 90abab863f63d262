"""One worker of a run under an algorithm: it joins one group after another, until the run ends."""

import gc
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from math import inf

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store, TCPStore

from trainwright.algorithm.meeting import survives
from trainwright.errors import TrainwrightError
from trainwright.runtime.apart.assemble import assemble, connect, next_group
from trainwright.runtime.apart.connections import hang_up, open_sockets
from trainwright.runtime.apart.job import Job
from trainwright.runtime.apart.regroup import Memory
from trainwright.runtime.apart.roll import Roll
from trainwright.runtime.apart.session import Session
from trainwright.runtime.metrics import Metrics
from trainwright.runtime.notice import Notice
from trainwright.runtime.process import BAD_INPUT, BROKEN, LOST, is_lost_peer
from trainwright.runtime.progress import Progress
from trainwright.runtime.state_file import save_values


def run_worker(build: Callable[[], Job], name: int, port: int, first: int, *, restarted: bool) -> int:
    """Do a worker's part of a run; the exit code.

    `first` is the group that was named when it was started: its own, or that of the workers it is to join.
    """
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    notice = Notice()
    notice.listen()
    store = TCPStore("localhost", port, is_master=False)
    try:
        return _run(build(), name, Roll(store), first, notice, restarted)
    except TrainwrightError as error:
        _say_once(store, f"trainwright: {error}")
        return BAD_INPUT
    except Exception as error:
        if is_lost_peer(error):
            return LOST
        _say_once(store, traceback.format_exc())
        return BROKEN


def _run(job: Job, name: int, roll: Roll, first: int, notice: Notice, restarted: bool) -> int:
    memory, before, group, joined = Memory(), open_sockets(), first, False
    finished: bool | None
    roll.wait_in_line(os.getpid())
    while True:
        group = next_group(roll, group, name)
        # One that was started later waits for the others' next meeting, however far it is.
        patience_s = job.timeout_s if joined or group == first else inf
        try:
            assemble(roll, group, name, patience_s)
            joined = True
            connect(roll, group, name, job.timeout_s)
            finished, values = _join(job, roll, group, notice, memory, restarted)
        except Exception as error:
            if not (is_lost_peer(error) and survives(job.algorithm)):
                raise
            finished = None
            roll.leave(group, name)
        if finished is None:
            _leave({number: name for number, name in open_sockets().items() if before.get(number) != name})
            group += 1
            continue
        if dist.get_rank() == 0:
            _end(job, finished, values, memory)
        with suppress(RuntimeError):  # the launcher is gone
            roll.finish(group)
        dist.destroy_process_group()
        return 0


def _join(
    job: Job, roll: Roll, group: int, notice: Notice, memory: Memory, restarted: bool
) -> tuple[bool | None, dict[str, torch.Tensor]]:
    def called() -> bool:
        with suppress(RuntimeError):  # the launcher is gone
            return roll.named(group + 1)
        return False

    session = Session(
        job=job, notice=notice, memory=memory, restarted=restarted, called=called,
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
