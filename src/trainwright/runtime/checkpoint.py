"""Checkpoints that do not know the plan: whole weights and moments, written in parts by who has them."""

import errno
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from trainwright.runtime.intact import agreed, load_newest
from trainwright.runtime.shelf import Kept, discard, kept_checkpoints, new_place, publish, tidy
from trainwright.runtime.stored_chunks import StoredChunk
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
        place = Path(agreed(lambda: str(new_place(self.shelf, step))))
        problem = self._write(place, step)
        if problem is not None:
            agreed(lambda: _attempt(lambda: discard(place)))
            raise self._unwritten(problem)
        return self.shelf / f"step-{step:08d}"

    def _write(self, place: Path, step: int) -> str | None:
        from trainwright.runtime.planners import save_chunks

        error, own = save_chunks(place, list(self._own_chunks()))
        if error:
            return _reason(error)
        listed: list[Any] | None = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
        dist.gather_object(own, listed)
        stored = [chunk for each in listed or () for chunk in each]
        return agreed(lambda: _attempt(lambda: self._publish(place, step, stored)))  # type: ignore[no-any-return]

    def _publish(self, place: Path, step: int, stored: Sequence[StoredChunk]) -> None:
        publish(place, step, self.note, stored)
        tidy(self.shelf, self.most)

    def _unwritten(self, problem: str) -> BadInput:
        before = kept_checkpoints(self.shelf)
        intact = f"the one of step {before[-1].step} is intact" if before else "there is none before it"
        return BadInput(
            f"checkpoint of step {self.trainer.step}", str(self.shelf), f"cannot be written ({problem})",
            f"make room, then continue with --resume: {intact}",
        )  # fmt: skip

    def resume(self, check: Callable[[Kept], None]) -> Kept | None:
        """Take over the newest intact checkpoint, whatever the plan was that it was saved under."""
        return load_newest(self.shelf, check, self._load)

    def _load(self, kept: Kept) -> str:
        """Why a checkpoint cannot be taken over; nothing if it was."""
        from trainwright.runtime.planners import load_chunks

        error = load_chunks(kept.path, list(self._all_chunks()))
        if error:
            return f"cannot be read: {_reason(error)}"
        self._take_over(kept.step)
        return ""

    def _take_over(self, step: int) -> None:
        for key in self.trainer.trained & set(self.trainer.pieces):
            self.trainer.optimizer.state[self.trainer.pieces[key][3]]["step"].fill_(step)
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
    """Raise if a checkpoint is of a model with other weights; one whose marker is damaged does not say."""
    if not kept.fault and kept.note.get("fingerprint") != note["fingerprint"]:
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
    stored = _stored(trainer, values) if claim.key in trainer.trained else {"weights": values}
    for kind, flat in stored.items():
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
