"""Checkpoints of runs under an algorithm: whole weights, and what every worker remembers."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from trainwright.algorithm.protocol import Member
from trainwright.algorithm.subnetwork import IstMember
from trainwright.algorithm.talk import converse
from trainwright.checksum import DigestWriter
from trainwright.errors import BadInput
from trainwright.runtime.apart.job import Job, check_job_kept
from trainwright.runtime.intact import agreed, load_newest
from trainwright.runtime.shelf import Kept, discard, new_place, publish, tidy
from trainwright.runtime.stored_chunks import StoredChunk

_WEIGHTS = "weights.pt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """A checkpoint as one worker has read it."""

    kept: Kept
    weights: Mapping[str, torch.Tensor]  # whole ones
    own: (
        dict[str, Any] | None
    )  # what this worker remembered; None if algorithm or count of workers was another


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Saves and loads what workers have, in one directory; all of them call alike."""

    shelf: Path
    job: Job

    def save(self, step: int, member: Member) -> Path:
        """A checkpoint; those before the last few are removed."""
        rank, count = dist.get_rank(), dist.get_world_size()
        place = Path(agreed(lambda: str(new_place(self.shelf, step))))
        talk = member.merged() if isinstance(member, IstMember) else member.whole()
        weights = converse(talk)
        listed: list[Any] = [None] * count
        dist.all_gather_object(listed, _attempt(place, rank, weights, member.kept()))
        found = next((each for each in listed if isinstance(each, str)), None)
        if found is None:
            merged = isinstance(member, IstMember) and member.sliced
            note = {**self.job.note, "workers": count, "merged": merged}
            stored = [chunk for each in listed for chunk in each]
            found = agreed(lambda: self._publish(place, step, note, stored))
        if found is not None:
            if rank == 0:
                discard(place)
            remedy = "make room, then continue with --resume: those before it are intact"
            raise BadInput(
                f"checkpoint of step {step}", str(self.shelf), f"cannot be written ({found})", remedy
            )
        return self.shelf / f"step-{step:08d}"

    def _publish(
        self, place: Path, step: int, note: Mapping[str, Any], stored: list[StoredChunk]
    ) -> str | None:
        """Give a checkpoint its name; why that failed, if it did."""
        try:
            publish(place, step, note, stored)
            tidy(self.shelf, self.job.keeping.most)
        except OSError as error:
            return error.strerror or str(error)
        return None

    def resume(self, *, restarted: bool) -> Restored | None:
        """The newest intact checkpoint, checked to be of this run; all workers get the same one."""
        return self._restore(lambda kept: check_job_kept(self.job, kept, restarted=restarted))

    def weights(self) -> Mapping[str, torch.Tensor] | None:
        """The whole weights of the newest intact checkpoint of this run, which goes on."""
        found = self._restore(lambda kept: None)
        return found.weights if found else None

    def _restore(self, check: Callable[[Kept], None]) -> Restored | None:
        found: list[Restored] = []

        def load(kept: Kept) -> str:
            try:
                found.append(_load(kept, self.job))
            except Exception as error:  # of many kinds, for files of an earlier version that are damaged
                return f"cannot be read: {str(error).partition(chr(10))[0]}"
            return ""

        return found[-1] if load_newest(self.shelf, check, load) else None


def _load(kept: Kept, job: Job) -> Restored:
    rank, workers = dist.get_rank(), dist.get_world_size()
    same = kept.note["algorithm"] == job.note["algorithm"] and kept.note["workers"] == workers
    return Restored(
        kept=kept,
        weights=torch.load(kept.path / _WEIGHTS, weights_only=True),
        own=torch.load(kept.path / f"worker-{rank}.pt", weights_only=True) if same else None,
    )


def _attempt(
    place: Path, rank: int, weights: dict[str, torch.Tensor], kept: dict[str, Any]
) -> list[StoredChunk] | str:
    """What this worker has written; why that failed, if it did."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        files: dict[str, Any] = {_WEIGHTS: weights} if rank == 0 else {}
        return [_save(place / name, value) for name, value in {**files, f"worker-{rank}.pt": kept}.items()]
    except (OSError, RuntimeError) as error:
        return str(getattr(error, "strerror", None) or str(error).splitlines()[0])


def _save(path: Path, value: object) -> StoredChunk:
    """Write a file, and have it on the disk."""
    with path.open("wb") as file:
        writer = DigestWriter(file)
        torch.save(value, writer)  # type: ignore[arg-type]
        file.flush()
        os.fsync(file.fileno())
        return StoredChunk(file=path.name, name="", first=0, last=file.tell(), sha256=writer.digest)
