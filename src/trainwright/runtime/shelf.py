"""The directory of a run's checkpoints: only whole ones have a name in it, and a marker of what they are."""

import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.checksum import Seal, check_seal, digest, seal
from trainwright.runtime.stored_chunks import (
    CHECKSUMS,
    StoredChunk,
    parse_chunks,
    render_chunks,
    stored_chunks,
)

MARKER = "trainwright.json"  # written last
FEWEST = 2  # checkpoints to keep: where the last one is damaged, the one before it is used
_NAME = re.compile(r"step-(\d{8,})$")
_DAMAGED = "damaged-"
_UNFINISHED = (".writing-", ".old-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A checkpoint that has its name: where it is, what its marker says, and what of it is plainly wrong."""

    path: Path
    step: int
    note: Mapping[str, Any]
    fault: str = ""  # of the marker, or of files that are missing or of another size; contents are not read

    @property
    def verifiable(self) -> bool:
        """Whether it has checksums; those of earlier versions have none."""
        return "checksums" in self.note


def kept_checkpoints(shelf: Path) -> tuple[Kept, ...]:
    """The checkpoints of a directory of which all files are there at their sizes, the latest last."""
    return tuple(each for each in named_checkpoints(shelf) if not each.fault)


def named_checkpoints(shelf: Path) -> tuple[Kept, ...]:
    """All checkpoints of a directory, also those with faults, the latest last."""
    paths = [path for path in shelf.iterdir() if _NAME.match(path.name)] if shelf.is_dir() else []
    return tuple(sorted(map(_kept, paths), key=lambda each: each.step))


def _kept(path: Path) -> Kept:
    step = int(path.name.removeprefix("step-"))
    try:
        content = (path / MARKER).read_bytes()
        note = json.loads(content)
        fault = _marker_fault(path, step, content, note) or _size_fault(path, note["files"])
    except FileNotFoundError:
        return Kept(path=path, step=step, note={}, fault=f"{MARKER} is missing")
    except OSError as error:
        return Kept(path=path, step=step, note={}, fault=f"{MARKER} cannot be read ({error.strerror})")
    except (ValueError, KeyError, TypeError, AttributeError):
        return Kept(path=path, step=step, note={}, fault=f"{MARKER} is not what was written")
    return Kept(path=path, step=step, note={} if fault else note, fault=fault)


def _marker_fault(path: Path, step: int, content: bytes, note: Mapping[str, Any]) -> str:
    """What is wrong with a marker. Without any checksum, it is of an earlier version."""
    found = check_seal(content)
    unsealed = found is Seal.ABSENT and ("checksums" in note or (path / CHECKSUMS).exists())
    if found is Seal.BROKEN or unsealed:
        return f"{MARKER}: its checksum differs"
    return "" if note["step"] == step else f"{MARKER} is that of step {note['step']}"


def _size_fault(path: Path, files: Mapping[str, int]) -> str:
    for name, size in files.items():
        try:
            found = (path / name).stat().st_size
        except FileNotFoundError:
            return f"{name} is missing"
        if found != size:
            return f"{name} has {found:,} bytes of {size:,}"
    return ""


def load_chunks_of(kept: Kept) -> tuple[StoredChunk, ...]:
    """The chunks of a checkpoint, with their checksums; raises ValueError if their list is damaged."""
    content = (kept.path / CHECKSUMS).read_bytes()
    if digest(content) != kept.note["checksums"]:
        raise ValueError(f"{CHECKSUMS}: its checksum differs")
    return parse_chunks(content.decode())


def new_place(shelf: Path, step: int) -> Path:
    """Where a checkpoint is written before it has a name."""
    return shelf / f".writing-{step:08d}-{os.getpid()}"


def publish(place: Path, step: int, note: Mapping[str, Any], chunks: Iterable[StoredChunk] = ()) -> Path:
    """Give a checkpoint its name, once all that it consists of is on the disk.

    `chunks` are those whose checksums are known from when they were written; other files are read for theirs.
    """
    text = render_chunks(stored_chunks(place, chunks))
    _write(place / CHECKSUMS, text)
    files = {each.name: each.stat().st_size for each in sorted(place.iterdir())}
    marker = {"step": step, **note, "files": files, "checksums": digest(text.encode())}
    _write(place / MARKER, seal(json.dumps(marker, indent=1)))
    _sync(place)
    target = place.parent / f"step-{step:08d}"
    if target.exists():  # of a run that was taken for dead
        discard(target)
    place.rename(target)
    _sync(place.parent)
    return target


def _write(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def set_aside(kept: Kept) -> Path:
    """Take its name from a damaged checkpoint, so that it is not counted among those that are kept."""
    target = kept.path.with_name(f"{_DAMAGED}{kept.path.name}")
    discard(target)
    kept.path.rename(target)
    return target


def discard(path: Path) -> None:
    """Remove a checkpoint; what is left of it, if that is interrupted, has no name."""
    unnamed = path if path.name.startswith(_UNFINISHED) else path.with_name(f".old-{path.name}-{os.getpid()}")
    if path.exists():
        path.rename(unnamed)
        shutil.rmtree(unnamed, ignore_errors=True)


def tidy(shelf: Path, most: int) -> None:
    """Remove what was never finished, and all checkpoints before the last few whole ones."""
    paths = list(shelf.iterdir()) if shelf.is_dir() else []
    for path in paths:
        if path.name.startswith(_UNFINISHED):
            shutil.rmtree(path, ignore_errors=True)
    named = named_checkpoints(shelf)
    first = min((each.step for each in [each for each in named if not each.fault][-most:]), default=0)
    damaged = [path for path in paths if path.name.startswith(_DAMAGED)]
    for path in [*(each.path for each in named), *damaged]:
        if int(path.name.rpartition("-")[2]) < first:
            discard(path)


def _sync(directory: Path) -> None:
    """Have the names in a directory on the disk."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
