"""Checkpoints of runs under an algorithm: whole weights, and what every worker remembers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from trainwright.algorithm.protocol import Member
from trainwright.algorithm.subnetwork import IstMember
from trainwright.algorithm.talk import converse
from trainwright.errors import BadInput
from trainwright.runtime.apart.job import Job, check_job_kept
from trainwright.runtime.shelf import Kept, discard, kept_checkpoints, new_place, publish, tidy

_WEIGHTS = "weights.pt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Saves and loads what workers have, in one directory; all of them call alike."""

    shelf: Path
    job: Job

    def save(self, step: int, member: Member) -> Path:
        """A checkpoint; those before the last few are removed."""
        rank, count = dist.get_rank(), dist.get_world_size()
        place = Path(agreed(str(new_place(self.shelf, step))))
        talk = member.merged() if isinstance(member, IstMember) else member.whole()
        weights = converse(talk)
        problem = _attempt(place, rank, weights, member.kept())
        problems: list[str | None] = [None] * count
        dist.all_gather_object(problems, problem)
        found = next((each for each in problems if each), None)
        if found is None and rank == 0:
            merged = isinstance(member, IstMember) and member.sliced
            publish(place, step, {**self.job.note, "workers": count, "merged": merged})
            tidy(self.shelf, self.job.keeping.most)
        dist.barrier()
        if found is not None:
            if rank == 0:
                discard(place)
            remedy = "make room, then continue with --resume: those before it are intact"
            raise BadInput(
                f"checkpoint of step {step}", str(self.shelf), f"cannot be written ({found})", remedy
            )
        return self.shelf / f"step-{step:08d}"

    def latest(self, *, restarted: bool) -> Kept | None:
        """The last whole checkpoint, checked to be of this run, as the first worker sees it."""
        found: Kept | None = agreed((kept_checkpoints(self.shelf) or (None,))[-1])
        if found is not None:
            check_job_kept(self.job, found, restarted=restarted)
        return found


def load_weights(kept: Kept) -> dict[str, torch.Tensor]:
    """The whole weights of a checkpoint."""
    return _load(kept.path / _WEIGHTS)  # type: ignore[no-any-return]


def load_own(kept: Kept, job: Job, rank: int, workers: int) -> dict[str, Any] | None:
    """What this worker remembered; nothing if the algorithm or the count of workers was another."""
    same = kept.note["algorithm"] == job.note["algorithm"] and kept.note["workers"] == workers
    return _load(kept.path / f"worker-{rank}.pt") if same else None


def _load(path: Path) -> Any:
    try:
        return torch.load(path, weights_only=True)
    except Exception as error:
        rule = f"cannot be read ({str(error).splitlines()[0]})"
        raise BadInput("checkpoint", str(path), rule, "remove it: the one before it will be used") from None


def _attempt(place: Path, rank: int, weights: dict[str, torch.Tensor], kept: dict[str, Any]) -> str | None:
    """Write this worker's part; why that failed, if it did."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        if rank == 0:
            torch.save(weights, place / _WEIGHTS)
        torch.save(kept, place / f"worker-{rank}.pt")
    except (OSError, RuntimeError) as error:
        return str(getattr(error, "strerror", None) or str(error).splitlines()[0])
    return None


def agreed(own: Any) -> Any:
    """What the first worker has, at all of them."""
    found = [own if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(found, src=0)
    return found[0]
