"""The answer to a request for a sweep: its dataset."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwright.api.fields import FilePath, render_command
from trainwright.api.frames import build_frame, render_html
from trainwright.api.requests import SweepRequest
from trainwright.api.result import ReportedResult, Rows
from trainwright.sweep import run
from trainwright.sweep.dataset import Manifest
from trainwright.sweep.load import load_sweep
from trainwright.sweep.query import load_duckdb, query
from trainwright.sweep.types import Sweep
from trainwright.units import parse_whole

if TYPE_CHECKING:
    from trainwright.report.figures import Figure
    from trainwright.report.page import Page

_ALL = "select * from points"
_SHOWN = 20
_FASTEST = 10
_REPORTED = 200  # rows of a report


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept(ReportedResult, schema="sweep/1"):
    """The dataset of a sweep: a folder, which SQL is asked of; its table is `points`."""

    request: SweepRequest
    sweep: Sweep
    folder: Path
    manifest: Manifest

    @property
    def row_count(self) -> int:
        """Rows of the dataset."""
        return sum(part.rows for part in self.manifest.parts)

    def query(self, sql: str) -> list[dict[str, Any]]:
        """The rows of an answer."""
        return [dict(row) for row in query(self.folder, sql).records()]

    def tree(self) -> Mapping[str, object]:
        """The tree that `trainwright sweep --json` writes."""
        return {"folder": str(self.folder), "rows": self.row_count, "manifest": self.manifest}

    def rows(self) -> Rows:
        """All points."""
        return self.query(_ALL)

    def to_dataframe(self, sql: str = _ALL, *, library: str | None = None) -> Any:
        """All points, or what a query says, as a dataframe."""
        return build_frame(self.query(sql), library)

    def fastest(self) -> Rows:
        """The fastest points: their axes, strategy, step and MFU."""
        columns = self._columns()
        wanted = [*(axis.name for axis in self.sweep.axes), "strategy", "step_s", "mfu"]
        listed = ", ".join(f'"{each}"' for each in wanted if each in columns)
        if "step_s" not in columns:
            return []
        return self.query(
            f"select {listed} from points where feasible order by step_s, point limit {_FASTEST}"
        )

    def infeasible_lines(self) -> list[str]:
        """How many rows have nothing that fits, and the most frequent reasons."""
        if "feasible" not in (columns := self._columns()):
            return []
        count = next(query(self.folder, "select count(*) from points where not feasible").rows)[0]
        lines = [f"Not feasible: {count:,} rows."] if count else []
        if count and "why" in columns:
            sql = "select why, count(*) as n from points where not feasible group by why order by n desc, why"
            lines += [f"  {rows:,}: {why}" for why, rows in query(self.folder, f"{sql} limit 3").rows]
        return lines

    def _columns(self) -> Sequence[str]:
        return query(self.folder, f"{_ALL} limit 0").columns

    def figures(self) -> "Sequence[Figure]":
        """Figures over the first axes."""
        from trainwright.sweep.plot import usual_figures

        return usual_figures(self.folder, [axis.name for axis in self.sweep.axes])

    def page(self) -> "Page":
        """The report: figures over the first axes, and the fastest points."""
        from trainwright.report.page import Page
        from trainwright.report.page import Rows as PageRows

        sweep, setting = self.sweep, self.sweep.setting
        order = "order by step_s, point" if "step_s" in self._columns() else ""
        rows = self.query(f"{_ALL} {order} limit {_REPORTED}")
        over = ", ".join(f"{axis.name} ({len(axis)} values)" for axis in sweep.axes)
        return Page(
            title=f"Sweep {sweep.name}",
            question=(
                f"{setting.model.name} on {setting.cluster.count:,} {setting.cluster.device.name}, "
                f"and with other {over}; the best strategy of each point by {sweep.objective}.",
            ),
            answer=(
                f"{self.row_count:,} rows; the {len(rows):,} fastest are below.", *self.infeasible_lines(),
            ),
            figures=self.figures(), tables=(PageRows(title="The fastest", rows=rows),),
            assumptions=(f"Operator times: {setting.cost}.", sweep.text),
            command=render_command("sweep", self.request),
        )  # fmt: skip

    def plot(self, x: str, y: str, out: FilePath = ".", **ask: Any) -> tuple[Path, Path]:
        """Draw `y` over `x`, or with `z` a heat map, as HTML and PNG; see `trainwright sweep plot --help`."""
        from trainwright.sweep.plot import Ask, plot

        return plot(self.folder, Ask(x=x, y=y, **ask), Path(out))

    def _repr_html_(self) -> str:
        return render_html(str(self.folder), self.query(f"{_ALL} limit {_SHOWN}"))


def answer_sweep(request: SweepRequest, progress: "run.Progress | None" = None) -> Swept:
    """Run a sweep, or resume it where it was interrupted."""
    load_duckdb()  # which reads the dataset in the end
    asked = request.what if isinstance(request.what, Sweep) else load_sweep(Path(request.what))
    folder = Path(asked.name if request.out is None else request.out)
    workers = 0 if request.workers in (None, 0) else parse_whole(request.workers, "--workers", most=4096)
    manifest = run.run_sweep(asked, folder, workers=workers, ray=request.ray or "", progress=progress)
    return Swept(request=request, sweep=asked, folder=folder, manifest=manifest)
