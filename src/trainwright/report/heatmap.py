"""Heat maps: a value over two axes, as a page and as a picture."""

import importlib
import io
from dataclasses import dataclass
from html import escape
from math import isnan
from pathlib import Path
from textwrap import fill

from trainwright.report.figures import render_page
from trainwright.report.files import save_bytes, save_text


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """Values over the cells of a grid, one row of them for each y; nan where there is none."""

    name: str  # of its files
    title: str
    note: str
    x_title: str
    y_title: str
    value_title: str
    x: tuple[str, ...]
    y: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        if len(self.values) != len(self.y) or any(len(row) != len(self.x) for row in self.values):
            raise ValueError(f"heat map {self.name}: values are not {len(self.y)} rows of {len(self.x)}")


def save_heatmap(folder: Path, heatmap: HeatMap) -> None:
    """The map as a page and as a picture."""
    save_text(folder / f"{heatmap.name}.html", render_heatmap_html(heatmap))
    save_bytes(folder / f"{heatmap.name}.png", render_heatmap_png(heatmap))


def render_heatmap_html(heatmap: HeatMap) -> str:
    """One page with everything in it: it opens without network access."""
    objects = importlib.import_module("plotly.graph_objects")
    cells = [[None if isnan(each) else each for each in row] for row in heatmap.values]
    words = [[_cell(each) for each in row] for row in heatmap.values]
    drawing = objects.Figure(
        objects.Heatmap(
            x=heatmap.x, y=heatmap.y, z=cells, text=words, texttemplate="%{text}", colorscale="Viridis",
            colorbar={"title": heatmap.value_title},
        )
    )  # fmt: skip
    drawing.update_layout(
        title=heatmap.title, template="plotly_white",
        xaxis={"title": heatmap.x_title, "type": "category"},
        yaxis={"title": heatmap.y_title, "type": "category"},
    )  # fmt: skip
    body = drawing.to_html(full_html=False, include_plotlyjs=True, div_id=heatmap.name)
    return render_page(heatmap.title, f"<p>{escape(heatmap.note)}</p>\n{body}")


def render_heatmap_png(heatmap: HeatMap, dpi: int = 110) -> bytes:
    """The map as a picture, with its note under it."""
    parts = importlib.import_module("matplotlib.figure")
    drawing = parts.Figure(figsize=(9, 6.2), dpi=dpi, layout="constrained")
    axes = drawing.add_subplot()
    image = axes.imshow(heatmap.values, aspect="auto", origin="lower", cmap="viridis")
    drawing.colorbar(image, label=heatmap.value_title)
    axes.set_xticks(range(len(heatmap.x)), heatmap.x, rotation=30)
    axes.set_yticks(range(len(heatmap.y)), heatmap.y)
    axes.set_xlabel(heatmap.x_title)
    axes.set_ylabel(heatmap.y_title)
    axes.set_title(heatmap.title)
    if len(heatmap.x) * len(heatmap.y) <= 200:
        middle = image.norm.vmin + 0.5 * (image.norm.vmax - image.norm.vmin)
        for row, values in enumerate(heatmap.values):
            for column, value in enumerate(values):
                colour = "black" if isnan(value) or value > middle else "white"
                axes.text(column, row, _cell(value), ha="center", va="center", fontsize=8, color=colour)
    drawing.supxlabel(fill(heatmap.note, 125), fontsize=8, x=0.02, ha="left")
    target = io.BytesIO()
    drawing.savefig(target, format="png", metadata={"Software": None})
    return target.getvalue()


def _cell(value: float) -> str:
    return "–" if isnan(value) else f"{value:.3g}"
