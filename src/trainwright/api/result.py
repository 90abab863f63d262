"""What all results share: plain values, rows, files."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trainwright.api.fields import FilePath
from trainwright.api.frames import build_frame
from trainwright.output_file import save_text
from trainwright.report.files import plain_tree, render_csv, render_json

if TYPE_CHECKING:
    from trainwright.report.figures import Figure
    from trainwright.report.page import Page

Rows = Sequence[Mapping[str, object]]


class Result(ABC):
    """The answer to a request, as data; `SCHEMA` names the form of its tree, with a version."""

    SCHEMA: ClassVar[str] = ""

    def __init_subclass__(cls, schema: str = "") -> None:
        super().__init_subclass__()
        cls.SCHEMA = schema or cls.SCHEMA  # a dataclass with slots is built a second time, without keywords

    @abstractmethod
    def tree(self) -> Mapping[str, object]:
        """All of it as a tree of values."""

    def to_dict(self) -> dict[str, Any]:
        """The tree that `--json` writes: plain values, and the schema that they follow."""
        return {"schema": f"trainwright.{self.SCHEMA}", **plain_tree(self.tree())}

    @abstractmethod
    def rows(self) -> Rows:
        """Its table, one mapping for each row."""

    def to_json(self) -> str:
        """The tree as text."""
        return render_json(self.to_dict())

    def to_dataframe(self, *, library: str | None = None) -> Any:
        """Its rows as a dataframe: of polars if it is installed, else of pandas, or of the one asked for."""
        return build_frame(self.rows(), library)

    def save_json(self, path: FilePath) -> None:
        """Write the tree as a file."""
        save_text(Path(path), self.to_json())


class ReportedResult(Result):
    """An answer that can be written as a table, a report or pictures too."""

    @abstractmethod
    def figures(self) -> "Sequence[Figure]":
        """What is drawn of it."""

    @abstractmethod
    def page(self) -> "Page":
        """The report."""

    def csv_rows(self) -> Rows:
        """The rows that `--csv` writes."""
        return self.rows()

    def csv_text(self) -> str:
        """The rows as CSV, with a header line."""
        rows = self.csv_rows()
        return render_csv(list(rows[0]), rows)

    def save_csv(self, path: FilePath) -> None:
        """Write the rows as CSV."""
        save_text(Path(path), self.csv_text())

    def save_report(self, path: FilePath) -> None:
        """Write all of it as one HTML file that opens offline."""
        from trainwright.report.page import render_page

        save_text(Path(path), render_page(self.page()))

    def save_figures(self, folder: FilePath) -> list[Path]:
        """Draw its figures as PNG and SVG; the files."""
        from trainwright.report.figures import save_pictures

        return save_pictures(Path(folder), self.figures())
