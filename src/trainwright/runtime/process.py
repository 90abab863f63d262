"""One process of a run, from its start under torchrun to its exit code."""

import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import parent_process
from threading import Thread, Timer

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from trainwright.errors import BadInput, TrainwrightError, one_line
from trainwright.program.lower import lower
from trainwright.runtime.checkpoint import Checkpoints
from trainwright.runtime.loop import Loop
from trainwright.runtime.machine import build_setting
from trainwright.runtime.metrics import Metrics
from trainwright.runtime.notice import Notice
from trainwright.runtime.progress import Progress
from trainwright.runtime.run_check import check_run, needs_check
from trainwright.runtime.state_file import save_state
from trainwright.runtime.trainer import Trainer, build_trainer, initialize
from trainwright.runtime.training import Training, check_kept
from trainwright.runtime.worker import build_worker

BAD_INPUT, BROKEN, LOST = 1, 70, 75  # exit codes: the user's, ours, and a peer that is gone
_START_S = 300
_FAILING = ("connection", "gloo", "timed out", "peer", "socket", "nccl", "cuda error")
_PATIENCE_S = 3.0  # of a process that was told to end, with its launcher
_LOST_S = 1.0  # before a process that has lost a peer ends: the peer's own end is then seen first
_PRINT_S = 10.0  # before a process that leaves the message to another ends all the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """The place of a process among all: its rank, of how many, and where they meet."""

    store: Store
    rank: int
    count: int


def run_process(build: Callable[[int], Training], *, restarted: bool) -> int:
    """Do this process's part of the run that `build` gives for a count of processes; the exit code.

    If it takes the place of one that has died, it goes on from the last checkpoint.
    """
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    notice = Notice()
    notice.listen()
    seat: Seat | None = None
    try:
        seat = _sit_down()
        finished = _train(build(seat.count), seat, notice, restarted)
        dist.destroy_process_group()
        Thread(target=_follow_launcher, args=(None if finished else _PATIENCE_S,), daemon=True).start()
        return 0
    except TrainwrightError as error:
        _say_once(seat, f"trainwright: {error}")
        return BAD_INPUT
    except torch.OutOfMemoryError as error:
        _say_once(seat, f"trainwright: {one_line(str(error))}; split further, recompute, or lower mb")
        return BAD_INPUT
    except Exception as error:
        if not is_lost_peer(error):
            _say_once(seat, traceback.format_exc())
            return BROKEN
        time.sleep(_LOST_S)
        if not notice.given:  # by a launcher that has seen a process die
            _say_once(seat, f"trainwright: {one_line(str(error))}")
        return LOST


def end_process(code: int) -> None:
    """Leave at once: what still waits for a peer would wait in vain."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _follow_launcher(timeout_s: float | None) -> None:
    """End this process, which is done and waits for a word from its launcher, if that cannot come.

    A launcher that has told it to end gives none.
    """
    launcher = parent_process()
    if launcher is not None:
        launcher.join(timeout_s)
        end_process(0)


def _sit_down() -> Seat:
    """Where this process meets the others; apart from what an earlier start has left there."""
    store, rank, count = next(rendezvous("env://", timeout=timedelta(seconds=_START_S)))
    start = store.add(f"trainwright/{restart_count()}/{count}/{rank}", 1)
    prefix = f"trainwright/{restart_count()}/{count}/start/{start}"
    return Seat(store=PrefixStore(prefix, store), rank=rank, count=count)


def _say_once(seat: Seat | None, text: str) -> None:
    """Print a message, unless another process has printed one.

    The others wait until it is printed: the launcher returns as soon as one process has failed.
    """
    try:
        turn = seat.store.add("said", 1) if seat else 1
    except Exception:  # where they met is gone
        turn = 1 if seat is not None and seat.rank == 0 else 2
    if turn == 1:
        print(text, file=sys.stderr, flush=True)
    if seat is not None:
        with suppress(Exception):  # the store is gone, or the one that prints was killed
            if turn == 1:
                seat.store.set("printed", "1")
            else:
                seat.store.wait(["printed"], timedelta(seconds=_PRINT_S))


def restart_count() -> int:
    """How often torchrun has started this process again."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def is_lost_peer(error: Exception) -> bool:
    """Whether communication or a device has failed, which is seldom the fault of the one that sees it."""
    if isinstance(error, dist.DistError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(word in text for word in _FAILING)


def _train(training: Training, seat: Seat, notice: Notice, restarted: bool) -> bool:
    """Whether the run came to its end, or was told to end before."""
    if training.plan.devices != seat.count:
        raise BadInput(
            "plan", training.plan.name, f"is for {training.plan.devices} processes, and {seat.count} started",
            f"start {training.plan.devices}, change the plan, or use --elastic",
        )  # fmt: skip
    device = _open(training, seat)
    trainer = _build(training, seat.rank, device)
    if needs_check(training, restarted=restarted):
        result = check_run(training, trainer, lambda other: _build(other, seat.rank, device))
        if seat.rank == 0:
            print(result, flush=True)
    checkpoints = _resume(training, trainer, restarted)
    loop = Loop(
        training=training, trainer=trainer, notice=notice, checkpoints=checkpoints,
        metrics=Metrics(path=training.keeping.metrics, board=training.keeping.tensorboard),
        progress=Progress(steps=training.recipe.steps), saved=trainer.step if trainer.step else -1,
    )  # fmt: skip
    finished = loop.run()
    if finished and training.keeping.export:
        save_state(training.keeping.export, trainer, training.learner.stored)
    if not finished and seat.rank == 0:
        how = "; --resume continues" if checkpoints else ", nothing was kept: state --checkpoint"
        print(f"stopped after step {trainer.step} of {training.recipe.steps}{how}", flush=True)
    return finished


def _open(training: Training, seat: Seat) -> torch.device:
    """Meet the other processes; where this one computes."""
    cuda = has_gpu()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    with _deadline(seat, training.timeout_s):
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if cuda else "gloo", store=seat.store, rank=seat.rank, world_size=seat.count,
            timeout=timedelta(seconds=training.timeout_s),
        )  # fmt: skip
    return device


@contextmanager
def _deadline(seat: Seat, seconds: float) -> Iterator[None]:
    """End this process if what is inside takes longer: gloo tries for ever to reach a peer."""
    timer = Timer(seconds, _give_up, (seat, seconds))
    timer.daemon = True
    timer.start()
    yield
    timer.cancel()


def _give_up(seat: Seat, seconds: float) -> None:
    _say_once(seat, f"trainwright: processes have not met in {seconds:g} s; can they reach one another?")
    end_process(LOST)


def has_gpu() -> bool:
    """Whether every process of this machine has a GPU of its own."""
    return torch.cuda.is_available() and torch.cuda.device_count() >= int(
        os.environ.get("LOCAL_WORLD_SIZE", "1")
    )


def _build(training: Training, rank: int, device: torch.device) -> Trainer:
    learner, plan = training.learner, training.plan
    setting = build_setting(learner.graph, plan.devices, training.samples.seq, plan.precision)
    timeout = timedelta(seconds=training.timeout_s)
    worker = build_worker(lower(setting, plan), rank, learner.kernels, device, timeout)
    trainer = build_trainer(worker, training.recipe, learner.decayed)
    initialize(worker, learner.initial())
    return trainer


def _resume(training: Training, trainer: Trainer, restarted: bool) -> Checkpoints | None:
    """The checkpoints of the run, the newest intact one taken over if it goes on."""
    keeping = training.keeping
    if keeping.checkpoints is None:
        return None
    found = Checkpoints(shelf=keeping.checkpoints, trainer=trainer, note=training.note, most=keeping.most)
    kept = found.resume(lambda each: check_kept(training, each, restarted=restarted))
    if kept is not None and dist.get_rank() == 0:
        print(f"resumes after step {kept.step}{_changes(kept.note, training.note)}", flush=True)
    return found


def _changes(before: Mapping[str, object], now: Mapping[str, object]) -> str:
    """What a run is given otherwise than before, of what its losses depend on."""
    names = [name for name in ("seed", "data", "batch", "seq", "recipe") if before.get(name) != now[name]]
    return f"; {', '.join(names)} changed" if names else ""
