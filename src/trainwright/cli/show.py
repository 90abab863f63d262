"""How far a long command is: a bar on a terminal, else a line now and then."""

import sys
import time
from types import TracebackType
from typing import Any

_LINE_S = 10.0  # between lines where there is no terminal


class Show:
    """Progress on standard error, as long as it is open; `patient`: no line before it has taken a while."""

    def __init__(self, *, patient: bool = False) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._shown_s = time.monotonic() if patient else 0.0

    def __enter__(self) -> "Show":
        return self

    def report_progress(self, done: int, planned: int, name: str) -> None:
        """So many of those planned are done, this one last."""
        if self._bar is None and sys.stderr.isatty():
            self._start_bar()
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=planned, description=name)
        elif done == planned or time.monotonic() - self._shown_s >= _LINE_S:
            self._shown_s = time.monotonic()
            print(f"{done}/{planned}  {name}", file=sys.stderr, flush=True)

    def _start_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            MofNCompleteColumn(), BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn(),
            console=Console(stderr=True),
        )  # fmt: skip
        self._task = self._bar.add_task("", total=None)
        self._bar.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
