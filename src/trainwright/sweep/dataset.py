"""The folder of a sweep: Parquet files that are whole or not there, and a manifest of what is finished.

    _manifest.json           what the dataset was made from, of each finished file its rows and checksum, and
                             its own checksum
    _sweep.toml              the sweep as it was asked
    points-000000.parquet    ...

A file counts once the manifest names it. Files are written under another name, flushed to the disk and
renamed, the manifest too. So whatever ends a run, the manifest names only whole files, and the next run goes
on behind them.
"""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from trainwright.checksum import Seal, check_seal, digest, digest_file, seal
from trainwright.errors import BadInput, TrainwrightError
from trainwright.output_file import describe, open_output
from trainwright.sweep.identity import program_digest, sweep_digest, versions
from trainwright.sweep.types import Sweep

MANIFEST, COPY = "_manifest.json", "_sweep.toml"  # what begins so, readers of datasets leave alone
_FORMAT, _UNSEALED = 2, 1


class UnfinishedSweep(TrainwrightError):
    """A sweep that stopped before its end: what is finished stays, and it can go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A finished file: its name, rows, size and checksum."""

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
    format: int = _FORMAT

    @property
    def sealed(self) -> bool:
        """Whether the manifest itself has a checksum; those of earlier versions have none."""
        return self.format != _UNSEALED

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
        content = path.read_bytes()
        if check_seal(content) is Seal.BROKEN:
            raise _damaged(path)
        table = json.loads(content)
        if table["format"] != (_FORMAT if table.pop("checksum", "") else _UNSEALED):
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


def _damaged(path: Path) -> BadInput:
    rule, remedy = "was edited or damaged since it was written: its checksum differs", "restore a copy of it"
    return BadInput("file", str(path), rule, f"{remedy}, or remove the folder and sweep again")


def save_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest; a reader sees the old one or the new one."""
    tree: dict[str, Any] = {"format": manifest.format} | asdict(manifest)
    tree["parts"] = tree.pop("parts")  # last: it grows
    text = json.dumps(tree, indent=1)
    write_whole(folder / MANIFEST, (seal(text) if manifest.sealed else text + "\n").encode())


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
    part = Part(file=file, rows=rows, bytes=len(content), sha256=digest(content))
    return replace(manifest, parts=(*manifest.parts, part))


def broken_parts(folder: Path, manifest: Manifest) -> Iterator[tuple[int, str]]:
    """The number of each part that is not as it was written, and what is wrong."""
    with ThreadPoolExecutor() as pool:  # checksums are computed without the interpreter's lock
        found = pool.map(lambda part: _fault(folder / part.file, part), manifest.parts)
        yield from ((number, fault) for number, fault in enumerate(found) if fault)


def _fault(path: Path, part: Part) -> str:
    """What is wrong with a part."""
    try:
        state = path.stat()
        if state.st_size != part.bytes:
            return f"has {state.st_size:,} bytes of {part.bytes:,}"
        if _digest(path, state.st_mtime_ns, state.st_ino) != part.sha256:
            return "is damaged: its checksum differs"
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return ""


@lru_cache(1 << 16)
def _digest(path: Path, time_ns: int, number: int) -> str:
    """The checksum of a file, read once by a process as long as nobody writes it."""
    return digest_file(path)


def check_parts(folder: Path, manifest: Manifest) -> None:
    """Raise for the first part that is broken."""
    for number, wrong in broken_parts(folder, manifest):
        raise BadInput(
            "file", str(folder / part_name(number)), wrong, "run the sweep again: it makes that part anew"
        )


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is whole or not there, also if the machine stops."""
    try:
        with open_output(path, durable=True) as file:
            file.write(content)
    except OSError as error:
        raise UnfinishedSweep(
            f'file "{path}": cannot be written ({describe(error)}); make room or make the folder writable, '
            "then run the same command again: what is finished stays"
        ) from None


def remove_drafts(folder: Path) -> None:
    """Remove what a run that was killed left half-written."""
    for draft in folder.glob(".*.tmp"):
        draft.unlink(missing_ok=True)
