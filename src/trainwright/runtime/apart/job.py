"""A run under an algorithm, as every worker of it knows it."""

from dataclasses import dataclass

import torch

from trainwright.algorithm.learning import Learning
from trainwright.algorithm.network import Batch
from trainwright.algorithm.protocol import Algorithm, Seat
from trainwright.algorithm.registry import render_algorithm
from trainwright.errors import BadInput
from trainwright.runtime.apart.network import LearnerNetwork
from trainwright.runtime.checkpoint import check_model, fingerprint
from trainwright.runtime.samples import Samples
from trainwright.runtime.shelf import Kept, named_checkpoints
from trainwright.runtime.trainer import Recipe
from trainwright.runtime.training import Keeping, check_resumes


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A model, an algorithm, data, for how long, and what is kept of it."""

    network: LearnerNetwork
    algorithm: Algorithm
    workers: int
    samples: Samples
    recipe: Recipe
    keeping: Keeping
    seed: int = 0
    evaluate_every: int = 0
    evaluation_batches: int = 8
    timeout_s: float = 300.0

    def __post_init__(self) -> None:
        if self.samples.batch % self.workers:
            rule = f"cannot be dealt to {self.workers} workers"
            raise BadInput("--batch", self.samples.batch, rule, "use a multiple of their count")

    @property
    def learning(self) -> Learning:
        """How each worker updates its weights."""
        recipe = self.recipe
        return Learning(
            optimizer="adamw", rate=recipe.rate, betas=recipe.betas, epsilon=recipe.epsilon,
            decay=recipe.decay, clip=recipe.clip, share=recipe.share,
        )  # fmt: skip

    def seat(self, rank: int, workers: int, first: int) -> Seat:
        """The place of a worker that begins with a step."""
        return Seat(rank=rank, workers=workers, steps=self.recipe.steps, seed=self.seed, first=first)

    def part(self, number: int, rank: int, workers: int) -> Batch:
        """A worker's part of the samples of a step; where some are gone, the others have one more or less."""
        rows = torch.from_numpy(self.samples.step(number))
        chosen = rows[rank * len(rows) // workers : (rank + 1) * len(rows) // workers]
        return Batch(chosen, chosen)

    @property
    def note(self) -> dict[str, object]:
        """What a checkpoint says of the run."""
        graph = self.network.learner.graph
        return {
            "model": graph.name, "fingerprint": fingerprint(graph), "seed": self.seed,
            "data": self.samples.tokens.name, "batch": self.samples.batch, "seq": self.samples.seq,
            "recipe": str(self.recipe), "algorithm": render_algorithm(self.algorithm),
        }  # fmt: skip


def check_job_shelf(job: Job) -> None:
    """Raise if the directory for checkpoints cannot be that of this run."""
    shelf = job.keeping.checkpoints
    for kept in named_checkpoints(shelf)[-1:] if shelf else ():
        check_job_kept(job, kept, restarted=False)


def check_job_kept(job: Job, kept: Kept, *, restarted: bool) -> None:
    """Raise if a run neither goes on nor was started again, or if the checkpoint is of another kind."""
    check_resumes(job.keeping, kept, restarted=restarted)
    check_model(kept, job.note)
    if not kept.fault and "workers" not in kept.note:
        rule = "was written by a run without --algorithm"
        raise BadInput("--checkpoint", str(kept.path), rule, "export its weights, and start --from them")
