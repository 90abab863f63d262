"""What every training algorithm is: a statement of its costs, and a member for each worker."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from trainwright.algorithm.anatomy import Anatomy
from trainwright.algorithm.message import Message

if TYPE_CHECKING:
    import torch

    from trainwright.algorithm.learning import Learning
    from trainwright.algorithm.network import Batch, Network

Result = TypeVar("Result")
# What a worker says, as a generator: it yields a request of talk.py and is sent the answer.
Talk = Generator[Any, Any, Result]
Values = Mapping[str, "torch.Tensor"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """The place of a worker in a run: which one of how many, and what all of them know."""

    rank: int
    workers: int
    steps: int  # of the whole run
    seed: int = 0
    first: int = 0  # the step that it begins with


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Numbers that a worker holds between steps; `moments` counts those of an optimizer with one each."""

    weights: float
    gradients: float
    moments: float
    beside: float = 0.0  # what the algorithm itself remembers: errors, shifts, the model before the round


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """FLOPs of a worker: forward and backward for every sample of its own, and beside them in every step.

    `step_bytes` of memory are read and written for the latter, beyond gradients and what is remembered.
    """

    sample_flops: float
    step_flops: float = 0.0
    step_bytes: float = 0.0


class Member(Protocol):
    """One worker of a run."""

    def step(self, number: int, batch: "Batch") -> Talk[float]:
        """Learn from this worker's part of a batch; its loss before the step."""
        ...

    def whole(self) -> Talk[dict[str, "torch.Tensor"]]:
        """The whole model, as it is used for inference, at every worker; all of them ask together."""
        ...

    def kept(self) -> dict[str, Any]:
        """All that this worker remembers from step to step, as it is; `torch.save` takes it."""
        ...

    def take_over(self, kept: Mapping[str, Any]) -> None:
        """Go on from what a worker remembered."""
        ...


class Algorithm(Protocol):
    """A way to train: a value of hyperparameters. With one worker, each is plain training."""

    def begin(self, network: "Network", learning: "Learning", seat: Seat, start: Values) -> Member:
        """A worker that starts from whole first weights, the same everywhere."""
        ...

    def messages(self, anatomy: Anatomy, seat: Seat, step: int) -> tuple[Message, ...]:
        """What a worker passes to collectives in a step of a run, exactly."""
        ...

    def memory(self, anatomy: Anatomy, workers: int) -> Memory:
        """What a worker holds."""
        ...

    def compute(self, anatomy: Anatomy, workers: int) -> Compute:
        """What a worker computes."""
        ...
