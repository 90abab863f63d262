"""The steps that one group of workers takes together, until the run ends or another group goes on."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite

import torch
import torch.distributed as dist

from trainwright.algorithm.counting import counted
from trainwright.algorithm.meeting import meets, survives
from trainwright.algorithm.network import Batch
from trainwright.algorithm.protocol import Member, Seat, Values
from trainwright.algorithm.registry import parse_algorithm
from trainwright.algorithm.talk import converse
from trainwright.errors import TrainwrightError
from trainwright.runtime.apart.job import Job
from trainwright.runtime.apart.keep import Keep, Restored
from trainwright.runtime.apart.merged import fitted
from trainwright.runtime.apart.regroup import Memory, recall, regroup
from trainwright.runtime.metrics import Metrics
from trainwright.runtime.notice import Notice
from trainwright.runtime.progress import Progress


@dataclass(slots=True, kw_only=True)
class Session:
    """One worker of a group; the first one shows and writes what all of them have found."""

    job: Job
    notice: Notice
    memory: Memory
    restarted: bool
    called: Callable[[], bool]  # whether another group is to go on after the next meeting
    metrics: Metrics
    progress: Progress
    losses: list[float] = field(default_factory=list)  # since the last meeting
    saved: int = -1
    met_s: float = 0.0
    told_bytes: int = 0  # passed to collectives by the algorithm since the last meeting

    def run(self) -> tuple[bool | None, dict[str, torch.Tensor]]:
        """Whether the run came to its end, and the model then; none if another group is to go on."""
        step = recall(self.memory)
        member, seat = self._fresh() if step < 0 else self._left(step)
        self.saved = seat.first
        if seat.rank == 0:
            self.metrics.open(seat.first)
            self.progress.open(seat.first)
        try:
            finished = self._steps(member, seat)
            return finished, converse(member.whole()) if finished else {}
        finally:
            self.progress.close()
            self.metrics.close()

    def _seat(self, first: int) -> Seat:
        return self.job.seat(dist.get_rank(), dist.get_world_size(), first)

    def _left(self, step: int) -> tuple[Member, Seat]:
        seat = self._seat(step)
        if seat.rank == 0:
            print(f"{seat.workers} workers go on after step {step}", flush=True)
        return regroup(self.job, self.memory, seat), seat

    def _fresh(self) -> tuple[Member, Seat]:
        """From the newest intact checkpoint, if there is one, else from first weights."""
        job, shelf = self.job, self.job.keeping.checkpoints
        restored = Keep(shelf=shelf, job=job).resume(restarted=self.restarted) if shelf else None
        seat = self._seat(restored.kept.step if restored else 0)
        member = job.algorithm.begin(job.network, job.learning, seat, self._start(restored, seat))
        if restored and restored.own is not None:
            member.take_over(restored.own)
        if restored and seat.rank == 0:
            print(f"resumes after step {restored.kept.step}", flush=True)
        return member, seat

    def _start(self, restored: Restored | None, seat: Seat) -> Values:
        """Whole weights to begin with; those of slices are fitted to another algorithm or other workers."""
        if restored is None:
            return self.job.network.initial(self.job.seed)
        note = restored.kept.note
        if restored.own is not None or not note.get("merged"):
            return restored.weights
        by = parse_algorithm(str(note["algorithm"]))
        return fitted(self.job, seat, restored.weights, by, int(str(note["workers"])))

    def _steps(self, member: Member, seat: Seat) -> bool | None:
        self.met_s = time.perf_counter()
        for number in range(seat.first, self.job.recipe.steps):
            part = self.job.part(number, seat.rank, seat.workers)
            with counted() as tally:
                self.losses.append(converse(member.step(number, part)))
            self.told_bytes += sum(tally.bytes.values())
            if meets(self.job.algorithm, seat, number):
                ended, called = self._meet(member, seat, number + 1)
                if (ended or called) and number + 1 < self.job.recipe.steps:
                    return False if ended else None
        return True

    def _meet(self, member: Member, seat: Seat, step: int) -> tuple[float, float]:
        """Tell the losses of the round, keep what is due; whether the run ends, or this group."""
        noticed = self.notice.given or self.notice.orphaned()
        told = torch.tensor([*self.losses, noticed, seat.rank == 0 and self.called()])
        dist.all_reduce(told)
        *sums, ended, called = told.tolist()
        self._write([each / seat.workers for each in sums], step, seat)
        self.memory.push(step, seat, member.kept() if survives(self.job.algorithm) else {})
        every, last = self.job.keeping.every, step == self.job.recipe.steps
        due = every and step // every > self.saved // every
        if self.job.keeping.checkpoints and (last or ended or due):
            path = Keep(shelf=self.job.keeping.checkpoints, job=self.job).save(step, member)
            self.saved = step
            if seat.rank == 0:
                self.progress.say(f"checkpoint: {path}")
        wanted = self.job.evaluate_every
        if wanted and step // wanted > (step - len(sums)) // wanted:
            self._evaluate(member, step)
        return ended, called

    def _write(self, losses: list[float], step: int, seat: Seat) -> None:
        seconds = (time.perf_counter() - self.met_s) / len(losses)
        rate = self.job.samples.batch * self.job.samples.seq / seconds
        for place, loss in enumerate(losses):
            number = step - len(losses) + place + 1
            if not isfinite(loss):
                raise TrainwrightError(f"step {number}: loss {loss}; lower --rate, or add --warmup or --clip")
            if seat.rank == 0:
                share = self.job.recipe.rate * self.job.recipe.share(number - 1)
                numbers = {"loss": loss, "rate": share, "tokens_per_s": rate, "seconds": seconds}
                told = {"told_bytes": self.told_bytes} if number == step else {}
                self.metrics.write(number, {**numbers, "workers": seat.workers, **told})
        if seat.rank == 0:
            self.progress.show(step, losses[-1], rate)
        self.losses, self.told_bytes, self.met_s = [], 0, time.perf_counter()

    def _evaluate(self, member: Member, step: int) -> None:
        values, total, count = converse(member.whole()), 0.0, 0
        for number in range(self.job.evaluation_batches if dist.get_rank() == 0 else 0):
            rows = self.job.samples.evaluation(number)
            if rows is None:
                break
            with torch.no_grad():
                given = torch.from_numpy(rows)
                total += float(self.job.network.loss(values, Batch(given, given))) * len(rows)
            count += len(rows)
        if count:
            self.metrics.write(step, {"evaluation_loss": total / count})
            self.progress.say(f"step {step}  evaluation loss {total / count:.4f}")
