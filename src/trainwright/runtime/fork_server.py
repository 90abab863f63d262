"""Processes from multiprocessing's fork server, also after that was killed."""

import time
from collections.abc import Callable
from typing import TypeVar

from trainwright.errors import TrainwrightError

# A server that was killed refuses connections until the system has removed it; the next call starts another.
_WAITS_S = (0.05, 0.2, 0.5, 1.0, 2.0)
_LOST = (ConnectionError, EOFError, ChildProcessError)

Started = TypeVar("Started")


def start_again(start: Callable[[], Started]) -> Started:
    """What `start` returns; called again if the fork server that it asks has died."""
    for wait_s in _WAITS_S:
        try:
            return start()
        except _LOST:
            time.sleep(wait_s)
    try:
        return start()
    except _LOST as error:
        raise TrainwrightError(
            f"fork server: was killed, and another cannot be reached ({type(error).__name__}); start the run "
            "again, with --resume if it has a checkpoint"
        ) from None
