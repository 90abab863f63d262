"""Checkpoints that do not know the plan: whole weights and moments, written in parts by who has them."""

import errno
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from trainwright.errors import BadInput
from trainwright.model.flow import wire
from trainwright.model.graph import Graph, dim_sizes
from trainwright.program.reference import weight_key
from trainwright.runtime.chunks import Box, Claim, claimed_boxes, flat_boxes
from trainwright.runtime.shelf import Kept, discard, kept_checkpoints, new_place, publish, tidy
from trainwright.runtime.trainer import Trainer

MOMENTS = ("exp_avg", "exp_avg_sq")  # of AdamW
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
Stored = Mapping[str, torch.Tensor]  # what is stored of a piece, by kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """Saves and loads what a trainer has, in one directory; all processes call alike."""

    shelf: Path
    trainer: Trainer
    note: Mapping[str, Any]  # what a checkpoint says of itself; "fingerprint" is compared when it is loaded
    most: int = 3  # that are kept

    def save(self) -> Path:
        """A checkpoint of the step that the trainer has reached; those before the last few are removed."""
        step = self.trainer.step
        place = Path(_agreed(lambda: str(new_place(self.shelf, step))))
        problem = self._write(place)
        if problem is None:
            problem = _agreed(lambda: _attempt(lambda: self._publish(place, step)))
        if problem is not None:
            _agreed(lambda: _attempt(lambda: discard(place)))
            raise self._unwritten(problem)
        return self.shelf / f"step-{step:08d}"

    def _write(self, place: Path) -> str | None:
        from trainwright.runtime.planners import save_chunks

        error = save_chunks(place, list(self._own_chunks()))
        return _reason(error) if error else None

    def _publish(self, place: Path, step: int) -> None:
        publish(place, step, self.note)
        tidy(self.shelf, self.most)

    def _unwritten(self, problem: str) -> BadInput:
        before = kept_checkpoints(self.shelf)
        intact = f"the one of step {before[-1].step} is intact" if before else "there is none before it"
        return BadInput(
            f"checkpoint of step {self.trainer.step}", str(self.shelf), f"cannot be written ({problem})",
            f"make room, then continue with --resume: {intact}",
        )  # fmt: skip

    def latest(self) -> Kept | None:
        """The last whole checkpoint, as the first process sees it."""
        found: Kept | None = _agreed(lambda: (kept_checkpoints(self.shelf) or (None,))[-1])
        return found

    def load(self, kept: Kept) -> None:
        """Take over a checkpoint, whatever the plan was that it was saved under."""
        from trainwright.runtime.planners import load_chunks

        check_model(kept, self.note)
        error = load_chunks(kept.path, list(self._all_chunks()))
        if error:
            rule = f"cannot be read ({_reason(error)})"
            raise BadInput("checkpoint", str(kept.path), rule, "remove it: the one before it will be used")
        self._take_over(kept.step)

    def _take_over(self, step: int) -> None:
        for _, _, _, values in self.trainer.pieces.values():
            self.trainer.optimizer.state[values]["step"].fill_(step)
        for parcel in self.trainer.worker.parcels.values():
            parcel.publish()
        self.trainer.worker.stale = True
        self.trainer.step = step

    def _own_chunks(self) -> Iterator[Any]:
        """What this process writes."""
        listed: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(listed, list(_claims(self.trainer)))
        everyone = [claim for each in listed for claim in each]
        for claim, box in claimed_boxes(everyone, dist.get_rank()):
            yield from _chunks(self.trainer, claim, box)

    def _all_chunks(self) -> Iterator[Any]:
        """What this process updates, whoever else does."""
        for claim in _claims(self.trainer):
            for box in flat_boxes(claim.box, claim.first, claim.last):
                yield from _chunks(self.trainer, claim, box)


def check_model(kept: Kept, note: Mapping[str, Any]) -> None:
    """Raise if a checkpoint is of a model with other weights."""
    if kept.note.get("fingerprint") != note["fingerprint"]:
        rule = f"is of another model, {kept.note.get('model')}, and this one is {note['model']}"
        raise BadInput("checkpoint", str(kept.path), rule, "use its model, or another directory")


def fingerprint(graph: Graph) -> str:
    """A number that two models share if their weights have the same names and sizes."""
    lines = set()
    for instance in wire(graph):
        sizes = dim_sizes(graph, graph.segments[instance.segment], 1, 1)
        for weight in instance.op.weights:
            lines.add(f"{weight_key(graph, instance, weight)} {[sizes[dim] for dim in weight.dims]}")
    return sha256("\n".join(sorted(lines)).encode()).hexdigest()[:16]


def _claims(trainer: Trainer) -> Iterator[Claim]:
    rank = dist.get_rank()
    for key, (slot, first, last, _) in trainer.pieces.items():
        yield Claim(rank=rank, key=key, box=tuple(slot.region.values()), first=first, last=last)


def _chunks(trainer: Trainer, claim: Claim, box: Box) -> Iterator[Any]:
    """A box of a weight and of its moments, as views of what this process has."""
    from trainwright.runtime.planners import Chunk

    slot, _, _, values = trainer.pieces[claim.key]
    for kind, flat in _stored(trainer, values).items():
        view = _view(flat, claim, box)
        yield Chunk(name=f"{kind}/{claim.key}", sizes=slot.sizes, box=box, values=view)


def _view(flat: torch.Tensor, claim: Claim, box: Box) -> torch.Tensor:
    """The values of a box, which lies inside one of those that the claim is made of."""
    at = 0
    for whole in flat_boxes(claim.box, claim.first, claim.last):
        shape = [high - low for low, high in whole]
        count = int(torch.Size(shape).numel())
        if all(low <= a and b <= high for (a, b), (low, high) in zip(box, whole, strict=True)):
            inside = tuple(slice(a - low, b - low) for (a, b), (low, _) in zip(box, whole, strict=True))
            return flat[at : at + count].view(shape)[inside]
        at += count
    raise AssertionError(f"{box} is outside of {claim}")


def _stored(trainer: Trainer, values: torch.Tensor) -> Stored:
    """What is stored of a piece: values in full precision, and the moments, zero before the first step."""
    state = trainer.optimizer.state[values]
    if "step" not in state:
        state["step"] = torch.tensor(0.0)
        state |= {kind: torch.zeros_like(values, requires_grad=False) for kind in MOMENTS}
    return {"weights": values, **{kind: state[kind] for kind in MOMENTS}}


def _agreed(find: Callable[[], Any]) -> Any:
    """What the first process finds, on all of them."""
    found = [find() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(found, src=0)
    return found[0]


def _attempt(act: Callable[[], None]) -> str | None:
    """Why an act on the disk has failed; nothing if it has not."""
    try:
        act()
    except OSError as error:
        return _reason(error)
    return None


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError):
        full = "the disk is full: " if error.errno in _FULL else ""
        return f"{full}{error.strerror or error}"
    return str(error).partition("\n")[0] or type(error).__name__
