"""Silence: what a library says beside its result is kept off the screen."""

import io
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stderr


@contextmanager
def quiet() -> Iterator[None]:
    """Holds while no warnings and logs are shown."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def quiet_unless_first() -> AbstractContextManager[None]:
    """Holds while only one process shows what all of them would say alike."""
    return nullcontext() if os.environ.get("RANK", "0") == "0" else quiet()
