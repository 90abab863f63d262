"""`trainwright` whose runs wait where a test tells them to, so that it can disturb them there at any speed.

Started as `python -m tests.runtime.held_run run ...`. The process that writes metrics to FILE waits after a
step as long as FILE.hold has a number that is not above that step, unless it is given notice to end; a
finished checkpoint in DIR gets its name when there is no DIR.hold. Processes that are forked from here import
this too.
"""

import sys
import time
from pathlib import Path
from types import FrameType

from tests.runtime.launching import hold_file
from trainwright.cli.main import main
from trainwright.runtime.metrics import Metrics, Numbers
from trainwright.runtime.notice import Notice

_write, _take, _rename = Metrics.write, Notice._take, Path.rename
_LOOK_S = 0.01
_noticed: list[int] = []  # signals that were taken as notice


def _write_and_wait(self: Metrics, step: int, numbers: Numbers) -> None:
    _write(self, step, numbers)
    while self.path is not None and not _noticed and _is_held(hold_file(self.path), step):
        time.sleep(_LOOK_S)


def _is_held(file: Path, step: int) -> bool:
    try:
        return step >= int(file.read_text())
    except FileNotFoundError:
        return False


def _take_and_go_on(self: Notice, number: int, frame: FrameType | None) -> None:
    _noticed.append(number)
    _take(self, number, frame)


def _wait_and_rename(self: Path, target: Path) -> Path:
    while self.name.startswith(".writing-") and hold_file(self.parent).exists():
        time.sleep(_LOOK_S)
    return _rename(self, target)


Metrics.write = _write_and_wait  # type: ignore[method-assign]
Notice._take = _take_and_go_on  # type: ignore[method-assign]
Path.rename = _wait_and_rename  # type: ignore[method-assign,assignment]

if __name__ == "__main__":
    sys.exit(main())
