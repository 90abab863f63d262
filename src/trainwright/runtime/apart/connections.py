"""The connections of a group of workers, which must be seen to end when a worker leaves it.

Destroying a group of processes leaves its connections open while anything still refers to it, and gloo cannot
abort an operation; a worker that waits for one that has left would then wait until it times out.
"""

import os
import socket
from contextlib import suppress
from pathlib import Path

_OPEN_FILES = Path("/proc/self/fd")


def open_sockets() -> dict[int, str]:
    """The sockets of this process by file number, with their names; none if the system keeps no list."""
    found: dict[int, str] = {}
    if not _OPEN_FILES.is_dir():
        return found
    for name in os.listdir(_OPEN_FILES):
        with suppress(OSError):
            target = os.readlink(_OPEN_FILES / name)
            if target.startswith("socket:"):
                found[int(name)] = target
    return found


def hang_up(sockets: dict[int, str]) -> None:
    """End those of these connections that are still open, so that both sides see it."""
    now = open_sockets()
    for number, name in sockets.items():
        if now.get(number) != name:
            continue
        with suppress(OSError), socket.socket(fileno=os.dup(number)) as connection:
            connection.getpeername()  # which fails for one that only listens
            connection.shutdown(socket.SHUT_RDWR)
