"""One training run to learn from: a method on a network, and the curve that it gives."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Contest = Literal["mlp", "given-mlp", "transformer"]  # digits, samples that are given, text
Kind = Literal["whole", "small", "ensemble"]
BATCHES: Mapping[Contest, int] = {"mlp": 128, "given-mlp": 128, "transformer": 32}  # samples a step


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Samples of the user's, in a file; `digest` is of its bytes."""

    path: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A run of some steps: an algorithm on the whole network, or one of the controls.

    A `small` network has `share` of every group's units and is trained by the algorithm; an `ensemble` is one
    small network for each worker, trained on that worker's samples alone; their mean answer counts.
    """

    network: Contest
    algorithm: str  # as `parse_algorithm` reads it
    workers: int
    steps: int
    rate: float
    seed: int
    kind: Kind = "whole"
    share: float = 1.0
    judge_every: int = 0
    given: Given | None = None  # what a `given-mlp` learns from


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A run after some steps: losses and accuracies by name, and what a worker has sent until then.

    `validation` is for choosing, `test` for telling.
    """

    step: int
    sent_bytes: float
    validation: Mapping[str, float]
    test: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """What an experiment gave."""

    experiment: Experiment
    marks: tuple[Mark, ...]

    @property
    def last(self) -> Mark:
        """After the last step."""
        return self.marks[-1]
