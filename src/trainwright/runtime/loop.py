"""The loop of a run: steps, what is measured of them, and when they are kept."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray

from trainwright.errors import TrainwrightError
from trainwright.runtime.checkpoint import Checkpoints
from trainwright.runtime.metrics import Metrics
from trainwright.runtime.notice import Notice
from trainwright.runtime.progress import Progress
from trainwright.runtime.record import record_to
from trainwright.runtime.samples import build_microbatches
from trainwright.runtime.trainer import Outcome, Trainer
from trainwright.runtime.training import Training
from trainwright.runtime.whole import seed_of
from trainwright.runtime.worker import Microbatch

_SETTLED = 2  # steps of a run before one that is like all others


@dataclass(slots=True, kw_only=True)
class Loop:
    """One process of a run; the first one shows and writes what all of them have found."""

    training: Training
    trainer: Trainer
    notice: Notice
    checkpoints: Checkpoints | None
    metrics: Metrics
    progress: Progress
    saved: int = -1  # the step of the last checkpoint
    recorded: int = -1  # the step after which one is recorded

    def run(self) -> bool:
        """Take all steps that are left; whether none was left out because of notice to end."""
        self.recorded = min(self.trainer.step + _SETTLED, self.training.recipe.steps - 1)
        if dist.get_rank() == 0:
            self.metrics.open(self.trainer.step)
            self.progress.open(self.trainer.step)
        try:
            return self._steps()
        finally:
            self.progress.close()
            self.metrics.close()

    def _steps(self) -> bool:
        keeping, last = self.training.keeping, self.training.recipe.steps
        while self.trainer.step < last:
            self._step()
            step = self.trainer.step
            ended = self.notice.agreed(self.trainer.worker.torch_device)
            if step == last or ended or (keeping.every and step % keeping.every == 0):
                self._save()
            if ended and step < last:
                return False
            if self.training.evaluate_every and step % self.training.evaluate_every == 0:
                self._evaluate()
        return True

    def _step(self) -> None:
        samples, number = self.training.samples, self.trainer.step
        self.trainer.worker.computer.seed = seed_of(self.training.seed, number)
        start_s = time.perf_counter()
        outcome = self._take(self._batch(number))
        seconds = time.perf_counter() - start_s
        self._check(outcome, number)
        rate = samples.batch * samples.seq / seconds
        numbers = {
            "loss": outcome.loss, "gradient_norm": outcome.gradient_norm, "rate": outcome.rate,
            "tokens_per_s": rate, "seconds": seconds,
        }  # fmt: skip
        if dist.get_rank() == 0:
            self.metrics.write(number + 1, numbers)
            self.progress.show(number + 1, outcome.loss, rate)

    def _take(self, batch: Sequence[Microbatch]) -> Outcome:
        """One step, recorded if it is the one that was asked for."""
        path = self.training.keeping.record
        if path is None or self.trainer.step != self.recorded:
            return self.trainer.take(batch)
        return record_to(path, self.trainer, batch, self.training.keeping.cost)

    def _batch(self, number: int) -> Sequence[Microbatch]:
        return self._microbatches(self.training.samples.step(number))

    def _microbatches(self, rows: NDArray[np.int64]) -> Sequence[Microbatch]:
        plan, learner, device = self.training.plan, self.training.learner, self.trainer.worker.torch_device
        built = build_microbatches(rows, plan.microbatches, plan.batch, learner.loss, device)
        return [learner.taken(each) for each in built]

    def _check(self, outcome: Outcome, number: int) -> None:
        """Raise where training has blown up; what follows would be of no use."""
        if isfinite(outcome.loss) and isfinite(outcome.gradient_norm):
            return
        what, value = "loss", outcome.loss
        if isfinite(value):
            what, value = "gradient norm", outcome.gradient_norm
        first, count = number * self.training.samples.batch, self.training.samples.batch
        kept = f"the checkpoint of step {self.saved} is intact" if self.saved >= 0 else "no checkpoint yet"
        raise TrainwrightError(
            f"step {number + 1}: {what} {value} (samples {first} to {first + count - 1} of seed "
            f"{self.training.seed}, learning rate {outcome.rate:.3g}); lower --rate, add --warmup or --clip, "
            f"use bf16 or fp32 instead of fp16, or look at these samples; {kept}"
        )

    def _save(self) -> None:
        if self.checkpoints is None or self.saved == self.trainer.step:
            return
        path = self.checkpoints.save()
        self.saved = self.trainer.step
        if dist.get_rank() == 0:
            self.progress.say(f"checkpoint: {path}")

    def _evaluate(self) -> None:
        samples = self.training.samples
        total, count = 0.0, 0
        for number in range(self.training.evaluation_batches):
            rows = samples.evaluation(number)
            if rows is None:
                break
            total += self.trainer.evaluate(self._microbatches(rows)) * len(rows)
            count += len(rows)
        if dist.get_rank() == 0:
            self.metrics.write(self.trainer.step, {"evaluation_loss": total / count})
            self.progress.say(f"step {self.trainer.step}  evaluation loss {total / count:.4f}")
