"""Figures of a sweep: a column against another as lines, or over two as a heat map."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.errors import BadInput, UnknownName
from trainwright.report.figures import HOW_TO_GET, Axis, Figure, Grid, Series, can_draw, save_figures
from trainwright.sweep.query import query
from trainwright.units import render_si

_MOST_CELLS, _MOST_LINES = 40_000, 40
_UNITS = (("_bytes_per_s", "B/s"), ("_flops_per_s", "FLOP/s"), ("_bytes", "B"), ("_w", "W"))
_USUAL = (("step_s", "min"), ("tokens_per_s", "max"), ("mfu", "max"), ("dollars_per_million_tokens", "min"))
BEST = {"min": "min", "max": "max", "mean": "avg"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What is drawn: `y` against `x`, a line for each `color`; or, with `z`, its value over `x` and `y`.

    Where several points share a place, `best` says which of their values counts; `where` is SQL.
    """

    x: str
    y: str
    z: str = ""
    color: str = ""
    best: str = "min"
    where: str = "feasible"
    log: bool = False


def plot(folder: Path, ask: Ask, out: Path) -> tuple[Path, Path]:
    """Draw what is asked of a sweep's folder; returns the page and the picture."""
    if not can_draw():
        raise BadInput("sweep plot", "figures", "cannot be drawn here", HOW_TO_GET)
    figure = figure_of(folder, ask)
    out.mkdir(parents=True, exist_ok=True)
    save_figures(out, [figure])
    return out / f"{figure.name}.html", out / f"{figure.name}.png"


def figure_of(folder: Path, ask: Ask) -> Figure:
    """What is asked of a sweep's folder, as a figure."""
    _check(folder, ask)
    return _heatmap(folder, ask) if ask.z else _lines(folder, ask)


def usual_figures(folder: Path, axes: Sequence[str]) -> tuple[Figure, ...]:
    """Step time, speed and money over the first axes, of those that the dataset has; none if nothing fits."""
    known = query(folder, "select * from points limit 0").columns
    if (
        not axes
        or "feasible" not in known
        or not list(query(folder, "select 1 from points where feasible limit 1").rows)
    ):
        return ()
    shown = [(name, best) for name, best in _USUAL if name in known]
    if len(axes) == 1:
        return tuple(figure_of(folder, Ask(x=axes[0], y=name, best=best)) for name, best in shown)
    return tuple(figure_of(folder, Ask(x=axes[0], y=axes[1], z=name, best=best)) for name, best in shown)


def _check(folder: Path, ask: Ask) -> None:
    known = query(folder, "select * from points limit 0").columns
    for option, name in (("--x", ask.x), ("--y", ask.y), ("--z", ask.z), ("--color", ask.color)):
        if name and name not in known:
            raise UnknownName(f"sweep plot {option}", name, known)
    if ask.best not in BEST:
        raise UnknownName("sweep plot --best", ask.best, BEST)


def _lines(folder: Path, ask: Ask) -> Figure:
    keys = [ask.x, *([ask.color] if ask.color else [])]
    found = _grouped(folder, ask, keys, ask.y)
    names = list(dict.fromkeys(row[ask.color] if ask.color else ask.y for row in found))
    if len(names) > _MOST_LINES:
        raise BadInput(
            "sweep plot --color", ask.color, f"has {len(names)} values", "choose another, or --where"
        )
    series = tuple(_series(ask, found, name) for name in names)
    return Figure(
        name=_name(ask), title=f"{ask.y} over {ask.x}", claim="", holds=True, finding=_note(ask),
        x=Axis(title=ask.x, log=ask.log), y=Axis(title=ask.y), series=series,
    )  # fmt: skip


def _series(ask: Ask, found: Sequence[Mapping[str, Any]], name: Any) -> Series:
    rows = [row for row in found if not ask.color or row[ask.color] == name]
    title = f"{ask.color} {_shown(ask.color, name)}" if ask.color else str(name)
    return Series(name=title, x=tuple(row[ask.x] for row in rows), y=tuple(row["value"] for row in rows))


def _heatmap(folder: Path, ask: Ask) -> Figure:
    found = _grouped(folder, ask, [ask.x, ask.y], ask.z)
    across, up = (sorted({row[name] for row in found}) for name in (ask.x, ask.y))
    if len(across) * len(up) > _MOST_CELLS:
        rule = f"makes {len(across)} x {len(up)} cells"
        raise BadInput("sweep plot", f"{ask.x}, {ask.y}", rule, "choose columns of fewer values")
    values = {(row[ask.x], row[ask.y]): row["value"] for row in found}
    return Figure(
        name=_name(ask), title=f"{ask.z} over {ask.x} and {ask.y}", finding=_note(ask),
        x=Axis(title=ask.x), y=Axis(title=ask.y),
        grid=Grid(
            columns=tuple(_shown(ask.x, each) for each in across),
            rows=tuple(_shown(ask.y, each) for each in up), title=ask.z,
            values=tuple(tuple(values.get((x, y)) for x in across) for y in up),
        ),
    )  # fmt: skip


def _grouped(folder: Path, ask: Ask, keys: Sequence[str], value: str) -> list[Mapping[str, Any]]:
    """One row for each combination of some columns, in order."""
    listed = ", ".join(f'"{key}"' for key in keys)
    sql = (
        f'select {listed}, {BEST[ask.best]}("{value}")::double as value from points '
        f'where ({ask.where}) and "{value}" is not null group by {listed} order by {listed}'
    )
    found = list(query(folder, sql).records())
    if not found:
        raise BadInput("sweep plot --where", ask.where, "leaves no points", "ask for others")
    return found


def _shown(column: str, value: Any) -> str:
    if not isinstance(value, float | int) or isinstance(value, bool):
        return str(value)
    unit = next((unit for ending, unit in _UNITS if column.endswith(ending)), "")
    return render_si(float(value), unit).strip() if abs(value) >= 1e5 else f"{value:g}"


def _name(ask: Ask) -> str:
    return "-".join(word for word in (ask.z, ask.y, ask.x, ask.color) if word)


def _note(ask: Ask) -> str:
    return f"The {ask.best} of points that share a place, of those where {ask.where}."
