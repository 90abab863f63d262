"""The directory of a run's checkpoints: only whole ones have a name in it."""

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MARKER = "trainwright.json"  # written last
_NAME = re.compile(r"step-(\d{8,})$")
_UNFINISHED = (".writing-", ".old-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A whole checkpoint: where it is, and what its marker says."""

    path: Path
    step: int
    note: Mapping[str, Any]


def kept_checkpoints(shelf: Path) -> tuple[Kept, ...]:
    """The whole checkpoints of a directory, the latest last."""
    paths = list(shelf.iterdir()) if shelf.is_dir() else []
    return tuple(sorted((each for path in paths for each in _kept(path)), key=lambda each: each.step))


def _kept(path: Path) -> Iterator[Kept]:
    """A checkpoint, if it has the name of one and all files at the sizes that its marker states."""
    found = _NAME.match(path.name)
    if not found:
        return
    try:
        note = json.loads((path / MARKER).read_text(encoding="utf-8"))
        whole = all((path / name).stat().st_size == size for name, size in note["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return
    if whole:
        yield Kept(path=path, step=int(found[1]), note=note)


def new_place(shelf: Path, step: int) -> Path:
    """Where a checkpoint is written before it has a name."""
    return shelf / f".writing-{step:08d}-{os.getpid()}"


def publish(place: Path, step: int, note: Mapping[str, Any]) -> Path:
    """Give a checkpoint its name, once all that it consists of is on the disk."""
    files = {each.name: each.stat().st_size for each in sorted(place.iterdir())}
    with (place / MARKER).open("w", encoding="utf-8") as file:
        json.dump({"step": step, **note, "files": files}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    _sync(place)
    target = place.parent / f"step-{step:08d}"
    if target.exists():  # of a run that was taken for dead
        discard(target)
    place.rename(target)
    _sync(place.parent)
    return target


def discard(path: Path) -> None:
    """Remove a checkpoint; what is left of it, if that is interrupted, has no name."""
    unnamed = path if path.name.startswith(_UNFINISHED) else path.with_name(f".old-{path.name}-{os.getpid()}")
    if path.exists():
        path.rename(unnamed)
        shutil.rmtree(unnamed, ignore_errors=True)


def tidy(shelf: Path, most: int) -> None:
    """Remove what was never finished, and all whole checkpoints but the last few."""
    for path in list(shelf.iterdir()) if shelf.is_dir() else ():
        if path.name.startswith(_UNFINISHED):
            shutil.rmtree(path, ignore_errors=True)
    for each in kept_checkpoints(shelf)[:-most]:
        discard(each.path)


def _sync(directory: Path) -> None:
    """Have the names in a directory on the disk."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
