"""A process that makes parts of a sweep: `python -m trainwright.sweep.worker`, spoken to through its pipes.

It reads a pickled (sweep, points per part), then numbers of parts; for each it writes a pickled part, or the
error that a user must see. It ends when its input does, or when the process that started it is gone.
"""

import os
import pickle
import signal
import sys
import threading
import time
from typing import BinaryIO

from trainwright.errors import TrainwrightError
from trainwright.sweep.part import Maker


def main() -> None:
    """Make parts until there is nothing more to read."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the process that started this one
    threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that libraries print may come between answers
    try:
        _serve(sys.stdin.buffer, answers)
    except (EOFError, BrokenPipeError):
        os._exit(0)


def _serve(orders: BinaryIO, answers: BinaryIO) -> None:
    sweep, size = pickle.load(orders)
    maker = Maker(sweep, size)
    while True:
        number = pickle.load(orders)
        try:
            answer: object = maker.make(number)
        except TrainwrightError as error:
            answer = str(error)
        pickle.dump(answer, answers, protocol=5)
        answers.flush()


def _leave_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


if __name__ == "__main__":
    main()
