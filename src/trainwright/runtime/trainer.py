"""Training: a worker's steps, and what is done with the gradients after each."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import cos, pi
from typing import Literal

import torch
import torch.distributed as dist

from trainwright.errors import BadInput
from trainwright.model.graph import trained_weights
from trainwright.program.lower import Program
from trainwright.runtime.parcels import Parcel, Slot, key_of, weight_region
from trainwright.runtime.whole import Initial
from trainwright.runtime.work import IGNORED, is_bias
from trainwright.runtime.worker import Microbatch, Worker

Schedule = Literal["constant", "cosine", "linear"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How weights are updated: AdamW (Loshchilov & Hutter 2019), at a rate that follows a schedule.

    Over `warmup` steps the rate rises to `rate`; then it falls to `least` of it until step `steps`.
    Gradients whose norm is above `clip` are scaled down to it (0: never).
    """

    rate: float = 3e-4
    betas: tuple[float, float] = (0.9, 0.95)
    epsilon: float = 1e-8
    decay: float = 0.1  # of weights with two dims or more, biases apart
    clip: float = 1.0
    schedule: Schedule = "cosine"
    warmup: int = 0
    steps: int = 1
    least: float = 0.1

    def __post_init__(self) -> None:
        for name in ("rate", "epsilon", "decay", "clip", "warmup", "steps", "least"):
            if getattr(self, name) < 0:
                raise BadInput(f"recipe {name}", getattr(self, name), "is negative", "use 0 or more")
        if self.schedule not in ("constant", "cosine", "linear"):
            raise BadInput("recipe schedule", self.schedule, "is unknown", "use constant, cosine or linear")

    def share(self, step: int) -> float:
        """The learning rate at a step, as a share of the highest."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        if self.schedule == "constant":
            return 1.0
        gone = min((step - self.warmup) / max(self.steps - self.warmup, 1), 1.0)
        left = (1.0 + cos(pi * gone)) / 2.0 if self.schedule == "cosine" else 1.0 - gone
        return self.least + (1.0 - self.least) * left


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one step came to."""

    loss: float
    gradient_norm: float
    rate: float


@dataclass(slots=True, kw_only=True)
class Trainer:
    """One process of a training run; all processes take the same steps together."""

    worker: Worker
    recipe: Recipe
    optimizer: torch.optim.Optimizer
    pieces: Mapping[str, tuple[Slot, int, int, torch.Tensor]]  # what is kept up to date here, by name
    trained: frozenset[str]  # names of those that are updated; others are frozen
    copies: Mapping[str, float]  # of what is updated here of each weight, over all devices
    step: int = 0

    def take(self, batch: Sequence[Microbatch]) -> Outcome:
        """One step: forward, backward, update."""
        loss, norm = self._agree(self.backward(batch))
        rate = self.recipe.rate * self.recipe.share(self.step)
        if self.recipe.clip and norm > self.recipe.clip:
            for parcel in self._trained():
                parcel.own_gradients().mul_(self.recipe.clip / (norm + 1e-6))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        for parcel in self.worker.parcels.values():
            parcel.publish()
        self.worker.stale = True
        self.step += 1
        return Outcome(loss=loss, gradient_norm=norm, rate=rate)

    def _trained(self) -> list[Parcel]:
        return [parcel for parcel in self.worker.parcels.values() if parcel.trained]

    def backward(self, batch: Sequence[Microbatch]) -> float:
        """Forward and backward of a batch, without an update; this process's share of the loss."""
        self.worker.computer.answer_weights = _answer_weights(self.worker.program, batch)
        for _, _, _, values in self.pieces.values():
            values.grad = None
        loss = self.worker.run_step(batch)
        self._give_gradients()
        return loss

    def _give_gradients(self) -> None:
        """Let the optimizer see the gradients of what it updates."""
        for parcel in self._trained():
            own, low = parcel.own_gradients(), parcel.owned[0]
            for slot in parcel.slots:
                if slot.key in self.pieces:
                    _, first, last, values = self.pieces[slot.key]
                    start = slot.start + first - low
                    values.grad = own[start : start + last - first]

    def evaluate(self, batch: Sequence[Microbatch]) -> float:
        """The loss of a batch, without an update."""
        self.worker.computer.answer_weights = _answer_weights(self.worker.program, batch)
        return self.worker.whole_loss(self.worker.run_step(batch, forward_only=True))

    def _agree(self, loss: float) -> tuple[float, float]:
        """The loss and the norm of all gradients, over all processes; every element counts once."""
        listed = [
            (values.grad, self.copies[key])
            for key, (_, _, _, values) in self.pieces.items()
            if values.grad is not None
        ]
        norms = torch._foreach_norm([gradient for gradient, _ in listed]) if listed else []
        squares = sum(float(norm) ** 2 / copies for norm, (_, copies) in zip(norms, listed, strict=True))
        both = torch.tensor([loss, squares], dtype=torch.float64, device=self.worker.torch_device)
        dist.all_reduce(both)
        return float(both[0]), float(both[1]) ** 0.5


def build_trainer(worker: Worker, recipe: Recipe, decayed_keys: Collection[str] | None = None) -> Trainer:
    """A trainer whose optimizer updates, of every weight, what this process owns.

    Weights with two dims or more decay, biases apart, unless it is stated which do.
    """
    if not any(each.op.kind == "loss" for each in worker.program.instances):
        raise BadInput(
            "model", worker.program.setting.graph.name, "has no loss to be trained on",
            "let the module return one number, the mean over samples of what is to become small",
        )  # fmt: skip
    _check_weights(worker.program)
    pieces: dict[str, tuple[Slot, int, int, torch.Tensor]] = {}
    decayed: list[torch.Tensor] = []
    plain: list[torch.Tensor] = []
    for parcel in worker.parcels.values():
        for slot, first, last, values in parcel.pieces():
            wide = decays(slot) if decayed_keys is None else slot.key in decayed_keys
            if parcel.trained:
                (decayed if wide else plain).append(values)
            pieces[slot.key] = (slot, first, last, values)
    groups = [{"params": decayed, "weight_decay": recipe.decay}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(
        [group for group in groups if group["params"]] or [{"params": [torch.zeros(1)]}],
        lr=recipe.rate, betas=recipe.betas, eps=recipe.epsilon,
    )  # fmt: skip
    copies = {
        slot.key: _copies(worker.program, parcel, slot)
        for parcel in worker.parcels.values()
        for slot in parcel.slots
    }
    trained = frozenset(
        slot.key for parcel in worker.parcels.values() if parcel.trained for slot in parcel.slots
    )
    return Trainer(
        worker=worker, recipe=recipe, optimizer=optimizer, pieces=pieces, copies=copies, trained=trained
    )


def _check_weights(program: Program) -> None:
    """Refuse a model with nothing to train."""
    if not any(trained_weights(each.op) for each in program.instances):
        raise BadInput(
            "model", program.setting.graph.name, "all of its weights are frozen, or its loss uses none",
            "let some require a gradient",
        )  # fmt: skip


def _answer_weights(program: Program, batch: Sequence[Microbatch]) -> dict[str, float]:
    """What each answer of every loss counts in the loss of a step.

    A cross entropy is the mean over all answers of the step that count; a loss that is one number for each
    microbatch, the mean of those.
    """
    losses = [each for each in program.instances if each.op.kind == "loss"]
    counts = {each.name: _answers(each.name, batch) if each.op.contracted else len(batch) for each in losses}
    together = sum(counts[each.name] for each in losses if each.op.share is None)
    return {
        each.name: 1.0 / max(together, 1)
        if each.op.share is None
        else each.op.share / max(counts[each.name], 1)
        for each in losses
    }


def _answers(name: str, batch: Sequence[Microbatch]) -> int:
    """How many targets of a loss count."""
    return sum(int((one.targets[name] != IGNORED).sum()) for one in batch)


def decays(slot: Slot) -> bool:
    """Whether weight decay applies to a weight: neither to biases nor to scales."""
    return len(slot.sizes) > 1 and not is_bias(slot.key)


def _copies(program: Program, parcel: Parcel, slot: Slot) -> float:
    """How many devices update the same elements of a weight as this one does.

    The places of a tied weight may name its dims differently, so regions are compared by position.
    """
    holders: set[int] = set()
    own = tuple(slot.region.values())
    for number, route in enumerate(program.routes):
        for index, instance in enumerate(program.instances):
            for weight in instance.op.weights:
                if key_of(program, (index, weight.name)) == slot.key:
                    devices = route.placed[index].mesh.devices
                    holders.update(
                        device
                        for device in devices
                        if tuple(weight_region(program, number, (index, weight.name), device).values()) == own
                    )
    return len(holders) / len(parcel.update_sharing.members)


def initialize(worker: Worker, initial: Initial) -> None:
    """Fill the weights, each from its whole first value, which depends on its key alone."""
    for parcel in worker.parcels.values():
        flat = torch.zeros(parcel.size)
        for slot in parcel.slots:
            whole = initial(slot.key, slot.sizes).detach()
            part = whole[tuple(slice(low, high) for low, high in slot.region.values())]
            flat[slot.start : slot.end] = part.reshape(-1)
        low, high = parcel.weight_sharing.span(parcel.size)
        parcel.weights.copy_(flat[low:high])
        if parcel.master.data_ptr() != parcel.own_weights().data_ptr():
            low, high = parcel.owned
            parcel.master.copy_(flat[low:high])
