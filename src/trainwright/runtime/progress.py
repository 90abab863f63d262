"""What one process shows of a run while it goes on: a bar on a terminal, else a line now and then."""

import sys
import time
from dataclasses import dataclass, field
from typing import Any

_LINE_S = 10.0  # between lines where there is no terminal


@dataclass(slots=True, kw_only=True)
class Progress:
    """Steps taken of those that there are."""

    steps: int
    bar: Any = None
    task: Any = None
    shown_s: float = field(default=0.0)

    def open(self, step: int) -> None:
        """Begin after a step."""
        if not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self.bar = Bar(
            MofNCompleteColumn(), BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn(),
            console=Console(stderr=True),
        )  # fmt: skip
        self.task = self.bar.add_task("", total=self.steps, completed=step)
        self.bar.start()

    def show(self, step: int, loss: float, tokens_per_s: float) -> None:
        """The state after a step."""
        text = f"loss {loss:.4f}  {tokens_per_s:,.0f} tokens/s"
        if self.bar is not None:
            self.bar.update(self.task, completed=step, description=text)
        elif step in (1, self.steps) or time.monotonic() - self.shown_s >= _LINE_S:
            self.shown_s = time.monotonic()
            print(f"step {step}/{self.steps}  {text}", flush=True)

    def say(self, text: str) -> None:
        """A line above the bar."""
        if self.bar is not None:
            self.bar.console.print(text, highlight=False)
        else:
            print(text, flush=True)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self.bar is not None:
            self.bar.stop()
