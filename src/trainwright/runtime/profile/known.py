"""A short profile of this machine, measured once by the processes of a run and kept."""

import os
from pathlib import Path

import torch
import torch.distributed as dist

from trainwright.cost.source import load_profile
from trainwright.errors import BadInput, TrainwrightError
from trainwright.output_file import save_text
from trainwright.runtime.profile.entry import render_entry
from trainwright.runtime.profile.session import build_profile, memory_bytes
from trainwright.runtime.profile.tasks import Bench, Found, short_tasks


def known_profile() -> Path:
    """What was measured before with as many processes on this machine, else what they measure now.

    Every process must ask; all get the same.
    """
    path = cache_path(dist.get_world_size())
    known = [_readable(path) if dist.get_rank() == 0 else False]
    dist.broadcast_object_list(known)
    if not known[0]:
        world, threads = dist.get_world_size(), torch.get_num_threads()
        bench = Bench(device=torch.device("cpu"), dtype=torch.float32)
        found = [bench.measure(task) for task in short_tasks("cpu", world)]
        failed = [_save(path, found, world, threads) if dist.get_rank() == 0 else ""]
        dist.broadcast_object_list(failed)
        if failed[0]:
            raise BadInput(
                "profile", str(path), failed[0], "set XDG_CACHE_HOME to a folder that can be written"
            )
    return path


def _save(path: Path, found: list[Found], world: int, threads: int) -> str:
    """Write the profile; what went wrong, if anything did."""
    profile = build_profile(found, "cpu", world, threads, ())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # All processes were at it, so times are those of shared cores already.
        save_text(path, render_entry(profile, "here", 0, memory_bytes("cpu", world)))
    except (OSError, BadInput) as error:
        return f"cannot be written ({error})"
    return ""


def cache_path(processes: int) -> Path:
    """Where the profile of so many processes is kept: by release of PyTorch, cores and threads."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    words = (torch.__version__, f"{os.cpu_count()}cores", f"{processes}x{torch.get_num_threads()}threads")
    return cache / "trainwright" / f"profile-{'-'.join(words)}.toml"


def _readable(path: Path) -> bool:
    """Whether a profile is there as it was written; what is kept here nobody edits."""
    try:
        return not load_profile(path)[0].changed
    except TrainwrightError:
        return False
