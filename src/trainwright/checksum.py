"""Checksums of what is stored: SHA-256 of bytes, of parts of files, and at the end of JSON texts.

A JSON object is sealed by a last key, `"checksum":"sha256:..."`, over all bytes before it. Other programs
read such a file as before.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import IO, Protocol

_BLOCK = 1 << 20
_SEAL = re.compile(rb',"checksum":"sha256:([0-9a-f]{64})"\}\n\Z')
_SIGN = re.compile(rb'"checksum"|sha256:|[0-9a-f]{48}"\}\n\Z')  # one is left where a few bytes are damaged
_LENGTH = len(',"checksum":"sha256:"}\n') + 64


class Seal(Enum):
    """What the checksum at the end of a text says of it."""

    INTACT = "intact"
    BROKEN = "broken"
    ABSENT = "absent"


class _Sink(Protocol):
    def write(self, data: bytes, /) -> int: ...


def digest(content: bytes) -> str:
    """The checksum of some bytes."""
    return hashlib.sha256(content).hexdigest()


def digest_range(file: IO[bytes], first: int, last: int) -> str:
    """The checksum of the bytes of a file from one position to another, or to its end if that is before."""
    whole = hashlib.sha256()
    file.seek(first)
    while first < last and (block := file.read(min(_BLOCK, last - first))):
        whole.update(block)
        first += len(block)
    return whole.hexdigest()


def digest_file(path: Path) -> str:
    """The checksum of a whole file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class DigestWriter:
    """Passes bytes on to a file, and has their checksum: of what was meant to be written, not of what was."""

    def __init__(self, file: _Sink) -> None:
        self._file, self._whole = file, hashlib.sha256()

    def write(self, data: bytes) -> int:
        """Pass bytes on."""
        self._whole.update(data)
        return self._file.write(data)

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """The file stays open: more may follow in it."""

    @property
    def digest(self) -> str:
        """The checksum of all bytes so far."""
        return self._whole.hexdigest()


def seal(text: str) -> str:
    """The text of a JSON object that is not empty, with its checksum."""
    return "".join(seal_pieces([text.rstrip().removesuffix("}").rstrip()]))


def seal_pieces(pieces: Iterable[str]) -> Iterator[str]:
    """The text of a JSON object that comes in pieces, without its closing brace; then its checksum."""
    whole = hashlib.sha256()
    for piece in pieces:
        whole.update(piece.encode(errors="replace"))
        yield piece
    yield f',"checksum":"sha256:{whole.hexdigest()}"}}\n'


def check_seal(content: bytes) -> Seal:
    """Whether a file is as it was sealed."""
    found = _SEAL.search(content[-_LENGTH:])
    if found:
        own = digest(content[: len(content) - _LENGTH])
        return Seal.INTACT if own == found[1].decode() else Seal.BROKEN
    tail = content[-2 * _LENGTH :]
    return Seal.BROKEN if _SIGN.search(tail) else Seal.ABSENT
