"""The dataset of a sweep."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.api.frames import build_frame, render_html
from trainwright.sweep.dataset import Manifest
from trainwright.sweep.query import query

_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """The dataset of a sweep: a folder, which SQL is asked of; its table is `points`."""

    folder: Path
    manifest: Manifest

    def query(self, sql: str) -> list[dict[str, Any]]:
        """The rows of an answer."""
        return [dict(row) for row in query(self.folder, sql).records()]

    def to_dataframe(self, sql: str = "select * from points", library: str | None = None) -> Any:
        """All points, or what a query says, as a dataframe."""
        return build_frame(self.query(sql), library)

    def _repr_html_(self) -> str:
        return render_html(str(self.folder), self.query(f"select * from points limit {_SHOWN}"))
