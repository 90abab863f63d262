"""Numbers of a run, step by step: a line of JSON each, and TensorBoard where that is installed."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainwright.errors import BadInput
from trainwright.output_file import append_output, describe

Numbers = Mapping[str, float | int]


@dataclass(slots=True, kw_only=True)
class Metrics:
    """Writes numbers as they come; one process has it."""

    path: Path | None = None
    board: Path | None = None
    writers: list[Any] = field(default_factory=list)

    def open(self, step: int) -> None:
        """Begin after a step: what an interrupted run wrote of later ones is dropped."""
        if self.path is not None:
            self.writers.append(_Lines(self.path, step))
        if self.board is not None:
            self.writers.append(_board(self.board, step))

    def write(self, step: int, numbers: Numbers) -> None:
        """The numbers of a step."""
        for writer in self.writers:
            writer.write(step, numbers)

    def close(self) -> None:
        """Nothing more will come."""
        for writer in self.writers:
            writer.close()


class _Lines:
    def __init__(self, path: Path, step: int) -> None:
        self.path = path
        kept = _lines_until(path, step) if step else ""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.file = append_output(path, kept)
        except OSError as error:
            raise self._refused(error) from None

    def write(self, step: int, numbers: Numbers) -> None:
        line = json.dumps({"step": step, **numbers}) + "\n"
        try:
            self.file.write(line.encode())
        except OSError as error:
            raise self._refused(error) from None

    def _refused(self, error: OSError) -> BadInput:
        rule = f"cannot be written ({describe(error)})"
        return BadInput("--metrics", str(self.path), rule, "name another file")

    def close(self) -> None:
        self.file.close()


def _lines_until(path: Path, step: int) -> str:
    """The whole lines of a file up to a step; the last may have been cut off."""
    kept = []
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""  # it may be damaged
    for line in text.splitlines():
        try:
            number = json.loads(line)["step"]
        except (ValueError, KeyError, TypeError):
            continue
        if number <= step:
            kept.append(line + "\n")
    return "".join(kept)


class _Board:
    def __init__(self, writer: Any) -> None:
        self.writer = writer

    def write(self, step: int, numbers: Numbers) -> None:
        for name, number in numbers.items():
            self.writer.add_scalar(name, number, step)

    def close(self) -> None:
        self.writer.close()


def _board(path: Path, step: int) -> _Board:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise BadInput(
            "--tensorboard", str(path), "TensorBoard is not installed", "pip install tensorboard"
        ) from None
    return _Board(SummaryWriter(str(path), purge_step=step + 1))
