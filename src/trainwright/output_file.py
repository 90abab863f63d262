"""Files that commands write: whole or unchanged, and never in place of a device, a pipe or a link.

What a path leads to decides how it is written:

    nothing, a regular file      a draft in the same directory, renamed when it is complete
    a symbolic link              what it leads to, in the same way; the link stays
    a device, a FIFO             opened and written through
    /dev/stdout, /dev/fd/3       the open descriptor, from where it stands

An existing file keeps its owner, group and permissions. Where a draft cannot have them, or the directory
accepts no draft, the file is written in place, after its new content is complete.
"""

import errno
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from trainwright.errors import BadInput

_DESCRIPTORS = re.compile(r"/dev/fd|/proc/(?P<process>\d+)/(?:task/\d+/)?fd")
_MOST_LINKS = 40  # as the kernel follows
_EFFECTIVE = os.access in os.supports_effective_ids
_ACCESS_LIST = "system.posix_acl_access"
# A directory that takes no draft (read-only, not ours), a file that cannot be replaced (a mount point).
_WRITE_IN_PLACE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY}


def save_text(path: Path, text: str) -> None:
    """Write a file of UTF-8; what has no form in it, as in names of files, becomes a question mark."""
    save_bytes(path, text.encode(errors="replace"))


def save_bytes(path: Path, content: bytes) -> None:
    """Write a file."""
    save_pieces(path, (content,))


def save_pieces(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file of which one piece at a time is in memory."""
    try:
        with open_output(path) as file:
            for piece in pieces:
                file.write(piece)
    except OSError as error:
        raise BadInput(
            "file", str(path), f"cannot be written ({describe(error)})", "choose another path"
        ) from None


def make_folder(path: Path) -> None:
    """Make a directory, and those around it, unless it is there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            "directory", str(path), f"cannot be made ({describe(error)})", "choose another path"
        ) from None


def describe(error: OSError) -> str:
    """Why the system refused, in its words."""
    return error.strerror or str(error) or type(error).__name__


@contextmanager
def open_output(path: Path, *, durable: bool = False) -> Iterator[BinaryIO]:
    """A file to write to, which takes the path's place once the block ends without an error.

    Raises OSError. With `durable`, the content is on the disk before it has its name.
    """
    descriptor = _descriptor(path)
    found = None if descriptor is not None else _status(path)
    if found is not None and stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if descriptor is not None:
        way = _through(_continued(descriptor))
    elif found is not None and not stat.S_ISREG(found.st_mode):
        way = _through(os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC))
    else:
        way = _replacing(Path(os.path.realpath(path)), found, durable)
    with way as file:
        yield file


def append_output(path: Path, kept: str) -> BinaryIO:
    """A file to which lines are added, unbuffered: it holds `kept` first, or is a device or FIFO as it is."""
    descriptor = _descriptor(path)
    if descriptor is not None:
        return os.fdopen(_continued(descriptor), "wb", buffering=0)
    found = _status(path)
    flags = os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC
    if found is None or stat.S_ISREG(found.st_mode):
        with open_output(path) as file:
            file.write(kept.encode())
        flags |= os.O_APPEND
    return os.fdopen(os.open(path, flags), "wb", buffering=0)


def _status(path: Path) -> os.stat_result | None:
    """What a path leads to; nothing if that does not exist yet."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _descriptor(path: Path) -> int | None:
    """The number of the open descriptor that a path such as /dev/stdout names."""
    for _ in range(_MOST_LINKS):
        folder = os.path.realpath(path.parent)
        found = _DESCRIPTORS.fullmatch(folder)
        if found and path.name.isdigit() and found["process"] in (None, str(os.getpid())):
            return int(path.name)
        if not path.is_symlink():
            break
        path = Path(folder, path.readlink())
    return None


def _continued(descriptor: int) -> int:
    """A second descriptor of an open file, behind what was printed to it so far."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    return os.dup(descriptor)


@contextmanager
def _through(descriptor: int) -> Iterator[BinaryIO]:
    with os.fdopen(descriptor, "wb") as file:
        yield file


@contextmanager
def _replacing(target: Path, found: os.stat_result | None, durable: bool) -> Iterator[BinaryIO]:
    """A draft that is renamed; if there can be none, a draft elsewhere whose content is copied."""
    if found is not None and not os.access(target, os.W_OK, effective_ids=_EFFECTIVE):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))
    draft = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        file = _open_draft(draft, target, found)
    except OSError as error:
        if found is None or error.errno not in _WRITE_IN_PLACE:
            raise
        with tempfile.TemporaryFile() as content:
            yield content
            _overwrite(target, content)
        return
    try:
        with file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        _rename(draft, target, found)
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()


def _open_draft(draft: Path, target: Path, found: os.stat_result | None) -> BinaryIO:
    """A new file with owner, group and permissions of the one that it will replace."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(draft, flags, 0o666 if found is None else 0o600)
    try:
        if found is not None:
            own = os.fstat(descriptor)
            if (own.st_uid, own.st_gid) != (found.st_uid, found.st_gid):
                os.fchown(descriptor, found.st_uid, found.st_gid)
            _copy_access_list(target, descriptor)
            os.fchmod(descriptor, stat.S_IMODE(found.st_mode))
    except OSError:
        os.close(descriptor)
        draft.unlink()
        raise
    return os.fdopen(descriptor, "wb")


def _copy_access_list(target: Path, descriptor: int) -> None:
    if hasattr(os, "getxattr"):  # on Linux
        with suppress(OSError):  # most files, and some file systems, have none
            os.setxattr(descriptor, _ACCESS_LIST, os.getxattr(target, _ACCESS_LIST))


def _rename(draft: Path, target: Path, found: os.stat_result | None) -> None:
    try:
        draft.replace(target)
    except OSError as error:
        if found is None or error.errno not in _WRITE_IN_PLACE:
            raise
        with draft.open("rb") as content:
            _overwrite(target, content)


def _overwrite(target: Path, content: BinaryIO) -> None:
    """Write a file in place; the room for what it will hold is there before its first byte changes."""
    size = content.seek(0, os.SEEK_END)
    content.seek(0)
    with target.open("r+b") as file:
        if size > os.fstat(file.fileno()).st_size and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        shutil.copyfileobj(content, file)
        file.truncate()
