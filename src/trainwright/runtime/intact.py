"""The newest intact checkpoint of a directory: verified and chosen by all processes together."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist

from trainwright.errors import BadInput
from trainwright.runtime.shelf import Kept, load_chunks_of, named_checkpoints, set_aside
from trainwright.runtime.stored_chunks import faults, share


def load_newest(shelf: Path, check: Callable[[Kept], None], load: Callable[[Kept], str]) -> Kept | None:
    """Load the newest checkpoint that is intact on all processes; None if the directory has no checkpoint.

    All processes call it, and all load the same one. Every byte of a checkpoint is verified, each by one of
    them, before `load` is called, which returns why it failed on this process, if it did. `check` raises if a
    checkpoint is not that of this run. Damaged ones are named, and renamed once an intact one is loaded.
    """
    damaged: list[tuple[Kept, str]] = []
    for kept in reversed(agreed(lambda: named_checkpoints(shelf))):
        check(kept)
        fault = kept.fault or _agreed_fault(_verify(kept)) or _agreed_fault(load(kept))
        if not fault:
            _tell(kept, damaged)
            return kept  # type: ignore[no-any-return]
        damaged.append((kept, fault))
    if damaged:
        listed = "; ".join(f"{kept.path.name}: {fault}" for kept, fault in damaged)
        rule = f"has no intact checkpoint ({listed})"
        raise BadInput("--checkpoint", str(shelf), rule, "restore one from a copy, or name another directory")
    return None


def _verify(kept: Kept) -> str:
    """What is wrong with this process's share of a checkpoint."""
    if not kept.verifiable:
        return ""
    try:
        chunks = load_chunks_of(kept)
    except OSError as error:
        return f"its list of checksums cannot be read ({error.strerror})"
    except (ValueError, KeyError, TypeError) as error:
        return str(error)
    found = list(faults(kept.path, share(chunks, dist.get_rank(), dist.get_world_size())))
    return found[0] + (f", and {len(found) - 1} more" if len(found) > 1 else "") if found else ""


def _agreed_fault(own: str) -> str:
    """What any process has found, on all of them."""
    listed: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(listed, own)
    return next((each for each in listed if each), "")


def _tell(used: Kept, damaged: list[tuple[Kept, str]]) -> None:
    """Say which checkpoints are damaged, give them another name, and say what cannot be verified."""
    if dist.get_rank() == 0:
        for kept, fault in damaged:
            _say(
                f"checkpoint {kept.path} is damaged ({fault}), {_renamed(kept)}; "
                f"the one of step {used.step} is used"
            )
        if not used.verifiable:
            _say(f"checkpoint {used.path} has no checksums (an earlier version wrote it): it is not verified")
    dist.barrier()  # names have changed for all


def _renamed(kept: Kept) -> str:
    try:
        return f"and is now called {set_aside(kept).name}"
    except OSError as error:
        return f"and cannot be renamed ({error.strerror})"


def agreed(find: Callable[[], Any]) -> Any:
    """What the first process finds, on all of them."""
    found = [find() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(found, src=0)
    return found[0]


def _say(text: str) -> None:
    print(f"trainwright: {text}", file=sys.stderr, flush=True)
