"""A design space, explored into a dataset."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.library.frames import build_frame, render_html
from trainwright.sweep.dataset import Manifest
from trainwright.sweep.load import load_sweep
from trainwright.sweep.query import query
from trainwright.sweep.run import Progress, run_sweep
from trainwright.sweep.types import Sweep

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


def sweep(
    what: str | Path | Sweep,
    out: str | Path,
    *,
    workers: int = 0,
    ray: str = "",
    progress: Progress | None = None,
) -> Swept:
    """Run a sweep, or go on with it where it was interrupted: a file of TOML, or a `Sweep`."""
    asked = what if isinstance(what, Sweep) else load_sweep(Path(what))
    manifest = run_sweep(asked, Path(out), workers=workers, ray=ray, progress=progress)
    return Swept(folder=Path(out), manifest=manifest)
