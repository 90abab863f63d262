"""What a checkpoint consists of, chunk by chunk with checksums: the file `checksums.json` beside its data."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from trainwright.checksum import digest_file, digest_range

CHECKSUMS = "checksums.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChunk:
    """Bytes `first` to `last` of a file, what they are, and the checksum of what was written there."""

    file: str
    name: str  # empty: the whole file
    first: int
    last: int
    sha256: str

    @property
    def text(self) -> str:
        """The file and the chunk, for messages."""
        return f"{self.file}, chunk {self.name}" if self.name else self.file


def whole_file(path: Path) -> StoredChunk:
    """A file as one chunk, as it is now."""
    return StoredChunk(
        file=path.name, name="", first=0, last=path.stat().st_size, sha256=digest_file(path)
    )  # fmt: skip


def stored_chunks(place: Path, known: Iterable[StoredChunk]) -> Iterator[StoredChunk]:
    """All bytes of all files of a directory as chunks: those that are known, and the other files as one each.

    Raises OSError where the chunks of a file are not what it has.
    """
    listed = sorted(known, key=lambda each: (each.file, each.first))
    by_file = {file: list(chunks) for file, chunks in groupby(listed, key=lambda each: each.file)}
    for path in sorted(place.iterdir()):
        chunks = by_file.pop(path.name, None)
        if chunks is None:
            yield whole_file(path)
            continue
        ends = [0, *(each.last for each in chunks)]
        if [each.first for each in chunks] != ends[:-1] or ends[-1] != path.stat().st_size:
            raise OSError(f"{path.name} has other chunks than were written to it")
        yield from chunks
    if by_file:
        raise OSError(f"{min(by_file)} was written and is missing")


def render_chunks(chunks: Iterable[StoredChunk]) -> str:
    """The text of `checksums.json`: a list of chunks for each file, in their order, with their lengths."""
    lines: dict[str, list[str]] = {}
    for each in chunks:
        line = json.dumps([each.name, each.last - each.first, each.sha256])
        lines.setdefault(each.file, []).append(line)
    files = [json.dumps(file) + ": [\n" + ",\n".join(listed) + "]" for file, listed in lines.items()]
    return '{"checksum": "sha256", "files": {\n' + ",\n".join(files) + "\n}}\n"


def parse_chunks(text: str) -> tuple[StoredChunk, ...]:
    """The chunks that `checksums.json` lists."""
    return tuple(_parse(json.loads(text)["files"]))


def _parse(files: dict[str, list[tuple[str, int, str]]]) -> Iterator[StoredChunk]:
    for file, chunks in files.items():
        first = 0
        for name, length, sha256 in chunks:
            yield StoredChunk(file=file, name=name, first=first, last=first + length, sha256=sha256)
            first += length


def faults(place: Path, chunks: Sequence[StoredChunk]) -> Iterator[str]:
    """What of some chunks is not as it was written, one text for each."""
    for file, listed in groupby(chunks, key=lambda each: each.file):
        try:
            with (place / file).open("rb") as opened:
                for each in listed:
                    if digest_range(opened, each.first, each.last) != each.sha256:
                        yield f"{each.text}: its checksum differs"
        except FileNotFoundError:
            yield f"{file} is missing"
        except OSError as error:
            yield f"{file} cannot be read ({error.strerror or error})"


def share(chunks: Sequence[StoredChunk], rank: int, count: int) -> tuple[StoredChunk, ...]:
    """The chunks that fall to one of some processes: about as many bytes to each, and each chunk to one."""
    total = sum(each.last - each.first for each in chunks) + len(chunks)
    found, at = [], 0
    for each in chunks:
        if at * count // total == rank:
            found.append(each)
        at += each.last - each.first + 1
    return tuple(found)
