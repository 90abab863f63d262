"""One step of a run, recorded: when each process did what, as a timeline like the simulator's."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter

import torch
import torch.distributed as dist

from trainwright.cost.source import parse_cost
from trainwright.program.lower import Program
from trainwright.program.sequence import Turn
from trainwright.report.trace import describe, save_trace
from trainwright.runtime.machine import profiled_cluster, profiled_source
from trainwright.runtime.profile.known import known_profile
from trainwright.runtime.trainer import Outcome, Trainer
from trainwright.runtime.transfer import Arrival
from trainwright.runtime.worker import Microbatch
from trainwright.simulate.measured import AGREEMENT, OVERHEAD, UPDATE, Seen, build_measured
from trainwright.simulate.timeline import Timeline
from trainwright.simulate.whole import simulate_plan

_PINGS = 20  # messages that tell how far two clocks are apart; the quickest of them counts


@dataclass(slots=True)
class _Note:
    """One turn while it is taken."""

    turn: Turn
    start_s: float
    end_s: float = 0.0
    waited_s: float = 0.0  # for what other turns have started


@dataclass(slots=True)
class Recorder:
    """Notes when this process takes its turns, and when what they send for arrives.

    What a turn waits for is taken off its start: it reads before it works. What is on its way ends when it
    has come, or if that is not told, when it was waited for.
    """

    now: Callable[[], float] = perf_counter
    notes: list[_Note] = field(default_factory=list)
    current: _Note | None = None

    @contextmanager
    def taking(self, turn: Turn) -> Iterator[None]:
        """Note one turn."""
        note = self.current = _Note(turn, self.now())
        self.notes.append(note)
        yield
        note.end_s = max(note.end_s, self.now())
        self.current = None

    def following(self, arrival: Arrival) -> Arrival:
        """What this turn has started, so that its end is noted as well."""
        note = self.notes[-1]
        came: list[float] = []
        for work in arrival.works:
            with suppress(RuntimeError):  # gloo does not tell it of messages, nor of reduce-scatters
                work.get_future().add_done_callback(lambda _: came.append(self.now()))
        return Arrival((), partial(self._wait, arrival, note, came), arrival.kept)

    def _wait(self, arrival: Arrival, note: _Note, came: list[float]) -> torch.Tensor | None:
        start_s = self.now()
        for work in arrival.works:
            work.wait()
        waited_s = self.now()
        found = arrival.finish()
        end_s = self.now()
        told = len(came) == len(arrival.works) > 0
        note.end_s = max(note.end_s, min(max(came), waited_s) + end_s - waited_s if told else end_s)
        if self.current is not None and self.current is not note:
            self.current.waited_s += end_s - start_s
        return found

    def seen(self, offset_s: float) -> list[Seen]:
        """All turns, on a clock that is so far ahead of this one."""
        return [
            Seen(*each.turn, min(each.start_s + each.waited_s, each.end_s) + offset_s, each.end_s + offset_s)
            for each in self.notes
        ]


def record(trainer: Trainer, batch: Sequence[Microbatch]) -> tuple[Outcome, Timeline | None]:
    """Take one training step and record it; the timeline of all processes on the first one, else None.

    An accelerator works behind its process, which therefore waits for it whenever it looks at its clock.
    """
    offset_s = _clock_offset_s(trainer.worker.torch_device)
    recorder = Recorder(_synchronized if trainer.worker.torch_device.type == "cuda" else perf_counter)
    trainer.worker.observer = recorder
    updates: list[float] = []
    hooks = (
        trainer.optimizer.register_step_pre_hook(lambda *_: updates.append(recorder.now())),
        trainer.optimizer.register_step_post_hook(lambda *_: updates.append(recorder.now())),
    )
    dist.barrier()
    begin_s = recorder.now()
    try:
        outcome = trainer.take(batch)
    finally:
        trainer.worker.observer = None
        for hook in hooks:
            hook.remove()
    seen = recorder.seen(offset_s)
    seen += _ends(recorder, updates, offset_s)
    return outcome, _gathered(trainer, begin_s + offset_s, seen)


def record_to(path: Path, trainer: Trainer, batch: Sequence[Microbatch], cost: str | None = None) -> Outcome:
    """Take one training step and save its trace; on CPUs, also that of its prediction on this machine.

    The prediction rests on a short profile, or on the source that `cost` names, which may be of an
    accelerator. Every process must call it; the first one writes.
    """
    outcome, timeline = record(trainer, batch)
    program = trainer.worker.program
    if timeline is not None:
        save_trace(path, timeline, describe(program, "measured"))
    if trainer.worker.torch_device.type == "cpu" or cost:
        file = parse_cost(cost or "profiled")[1]
        machine = Path(file) if file else known_profile()
        if timeline is not None:
            _save_prediction(predicted_path(path), program, machine, cost)
    return outcome


def _save_prediction(path: Path, program: Program, machine: Path, cost: str | None) -> None:
    """The step as predicted for a profiled machine; if a source was asked for, its notes are printed."""
    setting, plan = program.setting, program.plan
    source = profiled_source(plan.devices, machine, cost or "profiled")
    here = replace(
        setting, cluster=profiled_cluster(plan.devices, machine), stack=source.stack,
        efficiency=source.efficiency, precision=plan.precision,
    )  # fmt: skip
    about = describe(program, "predicted") | {"cost": " ".join(source.notes)}
    save_trace(path, simulate_plan(here, plan).timeline, about)
    for note in source.notes if cost else ():
        print(note, flush=True)


def predicted_path(path: Path) -> Path:
    """Where the prediction of a recorded step is: `step.json` has its in `step.predicted.json`."""
    return path.with_name(f"{path.stem}.predicted{path.suffix}")


def _ends(recorder: Recorder, updates: Sequence[float], offset_s: float) -> Iterator[Seen]:
    """The update, what is between it and the last turn (the norm of all gradients), and after it."""
    done_s = max((each.end_s for each in recorder.notes), default=updates[0])
    start_s, end_s = updates
    if done_s < start_s:
        yield Seen(0, AGREEMENT, -1, done_s + offset_s, start_s + offset_s)
    yield Seen(0, UPDATE, -1, start_s + offset_s, end_s + offset_s)
    yield Seen(0, OVERHEAD, -1, end_s + offset_s, recorder.now() + offset_s)


def _gathered(trainer: Trainer, begin_s: float, seen: Sequence[Seen]) -> Timeline | None:
    """The timeline of all processes, from when the first of them began; only on the first one."""
    if dist.get_rank() > 0:
        dist.gather_object((begin_s, list(seen)))
        return None
    found: list[tuple[float, list[Seen]]] = [(0.0, [])] * dist.get_world_size()
    dist.gather_object((begin_s, list(seen)), found)
    first_s = min(start_s for start_s, _ in found)
    moved = {
        device: [each._replace(start_s=each.start_s - first_s, end_s=each.end_s - first_s) for each in listed]
        for device, (_, listed) in enumerate(found)
    }
    return build_measured(trainer.worker.program, moved)


def _synchronized() -> float:
    torch.cuda.synchronize()
    return perf_counter()


def _clock_offset_s(device: torch.device) -> float:
    """How far the first process's clock is ahead of this one's, from the quickest of some messages."""
    rank, best = dist.get_rank(), (float("inf"), 0.0)
    for other in range(1, dist.get_world_size()):
        for _ in range(_PINGS if rank in (0, other) else 0):
            if rank == 0:
                _answer(other, device)
            else:
                best = min(best, _ask(device))
    return best[1]


def _ask(device: torch.device) -> tuple[float, float]:
    """How long an answer took, and how far the other clock is ahead."""
    start_s = perf_counter()
    message = torch.zeros(1, dtype=torch.float64, device=device)
    dist.send(message, 0)
    dist.recv(message, 0)
    answer_s = float(message)
    end_s = perf_counter()
    return end_s - start_s, answer_s - (start_s + end_s) / 2


def _answer(other: int, device: torch.device) -> None:
    message = torch.zeros(1, dtype=torch.float64, device=device)
    dist.recv(message, other)
    dist.send(message.fill_(perf_counter()), other)
