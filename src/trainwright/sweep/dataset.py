"""The folder of a sweep: Parquet files that are whole or not there, and a manifest of what is finished.

    _manifest.json           what the dataset was made from, and of each finished file its rows and digest
    _sweep.toml              the sweep as it was asked
    points-000000.parquet    ...

A file counts once the manifest names it. Files are written under another name, flushed to the disk and
renamed, the manifest too. So whatever ends a run, the manifest names only whole files, and the next run goes
on behind them.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from trainwright.errors import BadInput, TrainwrightError
from trainwright.sweep.identity import program_digest, sweep_digest, versions
from trainwright.sweep.types import Sweep

MANIFEST, COPY = "_manifest.json", "_sweep.toml"  # what begins so, readers of datasets leave alone
_FORMAT = 1


class UnfinishedSweep(TrainwrightError):
    """A sweep that stopped before its end: what is finished stays, and it can go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A finished file: its name, rows, size and digest."""

    file: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a dataset was made from, and what of it is finished: the first parts, without a gap."""

    name: str
    sweep_sha256: str
    program_sha256: str
    versions: Mapping[str, str]
    points: int
    points_per_part: int
    parts: tuple[Part, ...] = ()

    @property
    def planned(self) -> int:
        """Parts of the whole dataset."""
        return -(-self.points // self.points_per_part)

    @property
    def finished(self) -> bool:
        """Whether all of it is there."""
        return len(self.parts) == self.planned


def new_manifest(sweep: Sweep, points_per_part: int) -> Manifest:
    """The manifest of a sweep of which nothing is finished."""
    return Manifest(
        name=sweep.name, sweep_sha256=sweep_digest(sweep), program_sha256=program_digest(),
        versions=versions(), points=len(sweep), points_per_part=points_per_part,
    )  # fmt: skip


def part_name(number: int) -> str:
    """The file of a part."""
    return f"points-{number:06}.parquet"


def load_manifest(folder: Path) -> Manifest:
    """The manifest of a folder."""
    path = folder / MANIFEST
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        if table.pop("format") != _FORMAT:
            raise ValueError("format")
        parts = tuple(Part(**each) for each in table.pop("parts"))
        return Manifest(**table, parts=parts)
    except FileNotFoundError:
        raise BadInput("sweep", str(folder), f"has no {MANIFEST}", "name the folder of a sweep") from None
    except OSError as error:
        raise BadInput("file", str(path), f"cannot be read ({error.strerror})", "check the folder") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        rule = "is not a manifest of this program"
        raise BadInput("file", str(path), rule, "remove the folder and sweep again") from None


def save_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest; a reader sees the old one or the new one."""
    tree: dict[str, Any] = {"format": _FORMAT} | asdict(manifest)
    tree["parts"] = tree.pop("parts")  # last: it grows
    write_whole(folder / MANIFEST, (json.dumps(tree, indent=1) + "\n").encode())


def check_same(folder: Path, old: Manifest, new: Manifest) -> None:
    """Raise if a folder was made from something else than what is asked now."""
    remedy = "choose another --out, or remove this folder"
    for name, value in new.versions.items():
        if old.versions.get(name) != value:
            rule = f"was made with {name} {old.versions.get(name)}, and this is {value}"
            raise BadInput("sweep folder", str(folder), rule, remedy)
    if old.sweep_sha256 != new.sweep_sha256:
        raise BadInput(
            "sweep folder", str(folder), "was made from another sweep" + _difference(folder), remedy
        )
    if old.program_sha256 != new.program_sha256:
        rule = "was made with other code or constants of trainwright"
        raise BadInput("sweep folder", str(folder), rule, remedy)
    if (old.points, old.points_per_part) != (new.points, new.points_per_part):
        raise BadInput("sweep folder", str(folder), "is cut into other parts", remedy)


def _difference(folder: Path) -> str:
    return f": compare with {folder / COPY}" if (folder / COPY).is_file() else ""


def add_part(folder: Path, manifest: Manifest, content: bytes, rows: int) -> Manifest:
    """The manifest with its next part, which is written; not yet the manifest itself."""
    file = part_name(len(manifest.parts))
    write_whole(folder / file, content)
    part = Part(file=file, rows=rows, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    return replace(manifest, parts=(*manifest.parts, part))


def broken_parts(folder: Path, manifest: Manifest, *, deep: bool = True) -> Iterator[tuple[int, str]]:
    """The number of each part that is not as it was written, and what is wrong; by size alone if not deep."""
    for number, part in enumerate(manifest.parts):
        path = folder / part.file
        try:
            size = path.stat().st_size
            if size != part.bytes:
                yield number, f"has {size:,} bytes of {part.bytes:,}"
            elif deep and _digest(path) != part.sha256:
                yield number, "is not what was written: its digest differs"
        except FileNotFoundError:
            yield number, "is missing"
        except OSError as error:
            yield number, f"cannot be read ({error.strerror})"


def check_parts(folder: Path, manifest: Manifest, *, deep: bool = False) -> None:
    """Raise for the first part that is broken."""
    for number, wrong in broken_parts(folder, manifest, deep=deep):
        raise BadInput(
            "file", str(folder / part_name(number)), wrong, "run the sweep again: it makes that part anew"
        )


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is whole or not there, also if the machine stops."""
    draft = path.with_name(f".{path.name}.tmp")
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        reason = error.strerror or type(error).__name__
        raise UnfinishedSweep(
            f'file "{path}": cannot be written ({reason}); make room or mend the folder, then run the same '
            "command again: what is finished stays"
        ) from None


def remove_drafts(folder: Path) -> None:
    """Remove what a run that was killed left half-written."""
    for draft in folder.glob(".*.tmp"):
        draft.unlink(missing_ok=True)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
