"""What a run is to do: a model, a plan, data, for how long, and what is kept of it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainwright.errors import BadInput
from trainwright.model.graph import Graph
from trainwright.plan.plan import Plan
from trainwright.plan.text import render_plan
from trainwright.runtime.checkpoint import check_model, fingerprint
from trainwright.runtime.learner import Learner
from trainwright.runtime.samples import Samples
from trainwright.runtime.shelf import FEWEST, Kept, named_checkpoints
from trainwright.runtime.trainer import Recipe
from trainwright.runtime.worker import DTYPES


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """What a run leaves on the disk, and how often."""

    checkpoints: Path | None = None
    every: int = 0  # steps; 0: at the end only
    most: int = 3
    resume: bool = False
    metrics: Path | None = None
    tensorboard: Path | None = None
    record: Path | None = None
    cost: str | None = None  # where the operator times of the recorded step's prediction come from
    export: Path | None = None

    def __post_init__(self) -> None:
        if self.most < FEWEST:
            rule = "leaves none to use where the last checkpoint is damaged"
            raise BadInput("--keep", self.most, rule, f"keep {FEWEST} or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One run, as every process of it knows it."""

    learner: Learner
    plan: Plan
    samples: Samples
    recipe: Recipe
    keeping: Keeping
    seed: int = 0
    evaluate_every: int = 0  # steps; 0: never
    evaluation_batches: int = 8  # at most
    timeout_s: float = 300.0
    check: bool = True  # a traced module's gradients, before the first step
    replan: Callable[[Graph], Plan] | None = None  # the same plan for a model with fewer layers

    def __post_init__(self) -> None:
        if self.plan.precision not in DTYPES:
            known = ", ".join(DTYPES)
            raise BadInput("--precision", self.plan.precision, "cannot be run", f"use one of {known}")
        positions = self.graph.sizes.get("positions", 0)
        if positions and self.samples.seq > positions:
            rule = f"the model has {positions} positions"
            raise BadInput("--seq", self.samples.seq, rule, f"use {positions} or less")

    @property
    def graph(self) -> Graph:
        """The model's graph."""
        return self.learner.graph

    @property
    def note(self) -> dict[str, object]:
        """What a checkpoint says of the run."""
        return {
            "model": self.graph.name, "fingerprint": fingerprint(self.graph), "seed": self.seed,
            "data": self.samples.tokens.name, "batch": self.samples.batch, "seq": self.samples.seq,
            "recipe": str(self.recipe),
            "plan": render_plan(self.plan),
        }  # fmt: skip


def check_shelf(training: Training) -> None:
    """Raise if the directory for checkpoints cannot be that of this run."""
    shelf = training.keeping.checkpoints
    for kept in named_checkpoints(shelf)[-1:] if shelf else ():
        check_kept(training, kept, restarted=False)


def check_kept(training: Training, kept: Kept, *, restarted: bool) -> None:
    """Raise if a run neither goes on nor was started again, or if the checkpoint is of another model."""
    check_resumes(training.keeping, kept, restarted=restarted)
    check_model(kept, training.note)


def check_resumes(keeping: Keeping, kept: Kept, *, restarted: bool) -> None:
    """Raise if there is a checkpoint, and a run neither goes on nor was started again."""
    if not (keeping.resume or restarted):
        rule = f"has a checkpoint of step {kept.step}"
        raise BadInput("--checkpoint", str(kept.path.parent), rule, "add --resume, or name another directory")
