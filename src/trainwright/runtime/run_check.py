"""Which model a run is checked on before its first step: its own, or one with fewer layers."""

from collections.abc import Callable
from dataclasses import replace
from math import prod

import torch
import torch.distributed as dist

from trainwright.errors import BadInput, TrainwrightError
from trainwright.runtime.learner import Learner
from trainwright.runtime.samples import build_microbatches
from trainwright.runtime.shelf import kept_checkpoints
from trainwright.runtime.start_check import CheckResult, check_gradients, is_too_large
from trainwright.runtime.trainer import Trainer, initialize
from trainwright.runtime.training import Training

Build = Callable[[Training], Trainer]  # this process's trainer, with the first weights


def needs_check(training: Training, *, restarted: bool) -> bool:
    """Whether a run is to be compared with the module itself: after a restart, only if its plan changed."""
    if not training.check or training.learner.alone is None:
        return False
    shelf = training.keeping.checkpoints
    latest = kept_checkpoints(shelf)[-1:] if restarted and shelf else []
    return not any(each.note.get("plan") == training.note["plan"] for each in latest)


def check_run(training: Training, trainer: Trainer, build: Build) -> CheckResult:
    """Raise if a run would not train as the module does on one process; all processes call it together."""
    if not _from_first(_too_large(training)):
        try:
            return _compared(training, trainer)
        finally:
            initialize(trainer.worker, training.learner.initial())
    smaller = _smaller(training)
    found = build(smaller)
    try:
        return _compared(smaller, found)
    finally:
        found.worker.groups.close()


def _compared(training: Training, trainer: Trainer) -> CheckResult:
    learner, plan, samples = training.learner, training.plan, training.samples
    assert learner.alone is not None
    initialize(trainer.worker, learner.alone.initial())
    device = trainer.worker.torch_device
    rows = samples.step(0)[: plan.batch]
    (here,) = build_microbatches(rows, 1, plan.batch, learner.loss, device)
    (there,) = build_microbatches(rows, 1, plan.batch, learner.loss, torch.device("cpu"))
    return check_gradients(trainer, learner.alone, learner.taken(here), learner.alone.inputs(there))


def _too_large(training: Training) -> bool:
    assert training.learner.alone is not None
    weights = training.learner.alone.traced.weights.values()
    tokens = training.plan.batch * training.samples.seq
    return is_too_large(sum(prod(each.shape) for each in weights), tokens)


def _smaller(training: Training) -> Training:
    """The same run of a module with as few layers as its plan can have."""
    learner = training.learner
    assert learner.alone is not None
    least, (_, layers) = 1, learner.alone.layers
    while training.replan is not None and learner.shorter is not None and least < layers:
        try:
            shorter: Learner = learner.shorter(least)
            found = replace(training, learner=shorter, plan=training.replan(shorter.graph))
        except TrainwrightError:
            least *= 2
            continue
        if _from_first(_too_large(found)):
            break
        return found
    raise BadInput(
        "module", learner.graph.name, "is too large to be compared with one process, also with fewer layers",
        "use a smaller --seq or micro batch, or skip the comparison with --no-check",
    )  # fmt: skip


def _from_first(decided: bool) -> bool:
    """What the first process has decided."""
    shared = torch.tensor(int(decided))
    dist.broadcast(shared, 0)
    return bool(shared)
