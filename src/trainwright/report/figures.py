"""Figures that say what they test: a value, drawn as a page (Plotly) and as a picture (matplotlib).

    Figure ──► render_html   one page that needs no network
           ──► render_picture  the same for documents
           ──► save_figures  both, in a folder, with an index

Both libraries are optional (the extra `figures`) and imported when something is drawn.
"""

import importlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.util import find_spec
from pathlib import Path
from textwrap import fill
from typing import Any, Literal

from trainwright.errors import BadInput
from trainwright.output_file import save_bytes, save_text

HOW_TO_GET = "Figures need plotly and matplotlib: pip install 'trainwright[figures]'"
Form = Literal["png", "svg"]
FORMS: tuple[Form, ...] = ("png", "svg")
_NO_METADATA = {"png": {"Software": None}, "svg": {"Date": None}}  # the same bytes every time
_COLOURS = (  # Okabe and Ito (2008): told apart also by the colour-blind
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A5A00", "#6E6E6E", "#F0E442",
    "#000000",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """What an axis shows; of percent, values are shares."""

    title: str
    log: bool = False
    percent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line, set of points or set of bars with a name; bars stand over names."""

    name: str
    x: tuple[float, ...] | tuple[str, ...]
    y: tuple[float, ...]
    kind: Literal["line", "points", "bars", "stack"] = "line"  # what is stacked stands on one another

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise ValueError(f"series {self.name}: {len(self.x)} x and {len(self.y)} y")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A heat map: values over named columns and rows, `values[row][column]`; None where there is none."""

    columns: tuple[str, ...]
    rows: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    title: str  # of the values, with their unit
    percent: bool = False

    def __post_init__(self) -> None:
        if {len(self.rows)} != {len(self.values)} or {len(each) for each in self.values} != {
            len(self.columns)
        }:
            raise ValueError(f"grid {self.title}: not {len(self.rows)} rows of {len(self.columns)} values")


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A range of y that is shaded, in the colour of the series of the same place."""

    name: str
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure; if it tests a claim, whether that holds, and what was found.

    It has series, or a grid.
    """

    name: str  # of its files
    title: str
    claim: str = ""
    holds: bool = True
    finding: str = ""
    x: Axis
    y: Axis
    series: tuple[Series, ...] = ()
    bands: tuple[Band, ...] = ()
    grid: Grid | None = None

    @property
    def verdict(self) -> str:
        """In a word or two."""
        return "holds" if self.holds else "does not hold"


def can_draw() -> bool:
    """Whether the libraries for figures are installed."""
    return find_spec("plotly") is not None and find_spec("matplotlib") is not None


def save_pictures(folder: Path, figures: Sequence[Figure]) -> list[Path]:
    """Each figure as PNG and SVG; the files."""
    if find_spec("matplotlib") is None:
        raise BadInput("--figures", str(folder), "matplotlib is not installed", HOW_TO_GET)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        rule = f"cannot be made ({error.strerror})"
        raise BadInput("--figures", str(folder), rule, "choose another folder") from None
    saved = []
    for figure in figures:
        for form in FORMS:
            saved.append(folder / f"{figure.name}.{form}")
            save_bytes(saved[-1], render_picture(figure, form=form))
    return saved


def save_figures(folder: Path, figures: Sequence[Figure]) -> None:
    """Each figure as a page and as a picture."""
    for figure in figures:
        save_text(folder / f"{figure.name}.html", render_html(figure))
        save_bytes(folder / f"{figure.name}.png", render_picture(figure))


def render_html(figure: Figure) -> str:
    """One page with everything in it: it opens without network access."""
    objects = importlib.import_module("plotly.graph_objects")
    drawing = objects.Figure()
    for number, each in enumerate(figure.series):
        colour = _COLOURS[number % len(_COLOURS)]
        if each.kind in ("bars", "stack"):
            drawing.add_bar(name=each.name, x=each.x, y=each.y, marker_color=colour)
        else:
            mode = "lines+markers" if each.kind == "line" else "markers"
            drawing.add_scatter(name=each.name, x=each.x, y=each.y, mode=mode, line_color=colour)
    if figure.grid:
        drawing.add_heatmap(
            x=figure.grid.columns, y=figure.grid.rows, z=figure.grid.values, colorscale="Viridis",
            colorbar={"title": figure.grid.title, "tickformat": ".0%" if figure.grid.percent else None},
        )  # fmt: skip
    for number, band in enumerate(figure.bands):
        where = {
            "line_width": 0,
            "fillcolor": _COLOURS[number],
            "opacity": 0.12,
            "annotation_text": band.name,
        }
        drawing.add_hrect(y0=band.low, y1=band.high, **where)
    drawing.update_layout(
        title=figure.title,
        template="plotly_white",
        barmode="stack" if any(each.kind == "stack" for each in figure.series) else "group",
        xaxis=_plotly_axis(figure.x),
        yaxis=_plotly_axis(figure.y),
    )
    body = drawing.to_html(full_html=False, include_plotlyjs=True, div_id=figure.name)
    return render_page(figure.title, f"{_claim(figure)}\n{body}")


def render_picture(figure: Figure, dpi: int = 110, form: Form = "png") -> bytes:
    """The figure as a picture, with claim and finding under it."""
    parts = importlib.import_module("matplotlib.figure")
    drawing = parts.Figure(figsize=(9, 6.2), dpi=dpi, layout="constrained")
    axes = drawing.add_subplot()
    if figure.series:
        _draw_series(axes, figure)
    for number, band in enumerate(figure.bands):
        axes.axhspan(band.low, band.high, color=_COLOURS[number], alpha=0.12, lw=0, label=band.name)
    _matplotlib_axis(axes, "x", figure.x)
    _matplotlib_axis(axes, "y", figure.y)
    axes.set_title(figure.title)
    if figure.grid:
        _draw_grid(drawing, axes, figure.grid)
    else:
        axes.grid(visible=True, alpha=0.3)
        axes.legend(fontsize=8)
    words = f"Claim ({figure.verdict}): {figure.claim}\nFound: {figure.finding}"
    words = words if figure.claim else figure.finding
    if words:
        lines = "\n".join(fill(line, 125) for line in words.splitlines())
        drawing.supxlabel(lines, fontsize=8, x=0.02, ha="left")
    target = io.BytesIO()
    drawing.savefig(target, format=form, metadata=_NO_METADATA[form])
    return target.getvalue()


def render_index(
    title: str, lines: Sequence[str], figures: Sequence[Figure], files: Sequence[str], drawn: bool
) -> str:
    """The page that leads to everything: what was found, claim by claim, and the tables."""
    parts = [f"<h1>{escape(title)}</h1>", *(f"<p>{escape(line)}</p>" for line in lines)]
    if not drawn:
        parts.append(f"<p>{escape(HOW_TO_GET)}</p>")
    for figure in figures:
        parts += [f"<h2>{escape(figure.title)}</h2>", _claim(figure)]
        if drawn:
            page, picture = f"{figure.name}.html", f"{figure.name}.png"
            parts.append(
                f'<a href="{page}"><img src="{picture}" alt="{escape(figure.title)}" width="800"></a>'
            )
    links = ", ".join(f'<a href="{escape(each)}">{escape(each)}</a>' for each in files)
    return render_page(title, "\n".join([*parts, f"<h2>Tables</h2><p>{links}</p>"]))


def _claim(figure: Figure) -> str:
    if not figure.claim:
        return f"<p>{escape(figure.finding)}</p>"
    colour = "#2a7d2a" if figure.holds else "#b02020"
    return (
        f'<p><b>Claim:</b> {escape(figure.claim)} <b style="color:{colour}">It {figure.verdict}.</b><br>'
        f"<b>Found:</b> {escape(figure.finding)}</p>"
    )


def render_page(title: str, body: str) -> str:
    """A page with a title, complete in itself."""
    style = "body{font-family:sans-serif;max-width:70em;margin:2em auto;padding:0 1em}"
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{style}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _plotly_axis(axis: Axis) -> dict[str, Any]:
    return {
        "title": axis.title,
        "type": "log" if axis.log else None,
        "tickformat": ".0%" if axis.percent else None,
    }


def _draw_series(axes: Any, figure: Figure) -> None:
    bars = [each for each in figure.series if each.kind == "bars"]
    below = [0.0] * max((len(each.x) for each in figure.series), default=0)
    for number, each in enumerate(figure.series):
        colour = _COLOURS[number % len(_COLOURS)]
        if each.kind == "bars":
            width = 0.8 / len(bars)
            shift = width * (bars.index(each) - (len(bars) - 1) / 2)
            axes.bar([at + shift for at in range(len(each.x))], each.y, width, label=each.name, color=colour)
            axes.set_xticks(range(len(each.x)), each.x, rotation=20)
        elif each.kind == "stack":
            axes.bar(range(len(each.x)), each.y, 0.7, bottom=below, label=each.name, color=colour)
            axes.set_xticks(range(len(each.x)), each.x, rotation=20, ha="right")
            below = [low + high for low, high in zip(below, each.y, strict=True)]
        else:
            style = "o-" if each.kind == "line" else "o"
            axes.plot(each.x, each.y, style, label=each.name, color=colour, markersize=4)
            if each.x and isinstance(each.x[0], str):
                axes.tick_params(axis="x", rotation=20)


def _draw_grid(drawing: Any, axes: Any, grid: Grid) -> None:
    rows = [[float("nan") if each is None else each for each in row] for row in grid.values]
    image = axes.imshow(rows, cmap="viridis", aspect="auto", origin="lower")
    axes.set_xticks(range(len(grid.columns)), grid.columns)
    axes.set_yticks(range(len(grid.rows)), grid.rows)
    for row, values in enumerate(rows):
        for column, value in enumerate(values):
            if value == value:  # not where there is none
                text = f"{value:.0%}" if grid.percent else f"{value:.3g}"
                axes.text(column, row, text, ha="center", va="center", color="white", fontsize=8)
    drawing.colorbar(image, ax=axes, label=grid.title)


def _matplotlib_axis(axes: Any, which: str, axis: Axis) -> None:
    getattr(axes, f"set_{which}label")(axis.title)
    if axis.log:
        getattr(axes, f"set_{which}scale")("log", base=2 if which == "x" else 10)
    if axis.log or axis.percent:
        ticker = importlib.import_module("matplotlib.ticker")
        shown = "{x:.0%}" if axis.percent else "{x:g}"
        getattr(axes, f"{which}axis").set_major_formatter(ticker.StrMethodFormatter(shown))
