"""Signal handlers that are put back when whoever set others is done."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def restored_handlers() -> Iterator[None]:
    """Whatever handlers are set inside, those from before hold afterwards.

    Python sets handlers in the main thread only; in another there are none to put back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
