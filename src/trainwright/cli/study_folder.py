"""The folder that a study leaves: tables, figures where they can be drawn, and an index of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwright.errors import BadInput
from trainwright.report.figures import HOW_TO_GET, Figure, can_draw, render_index, save_figures
from trainwright.report.files import render_csv, render_json, save_text
from trainwright.report.heatmap import HeatMap, save_heatmap


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a study found: rows of tables by name, all of it as a tree, figures, and what to say first.

    A figure of the same name as one of `maps` is drawn as that heat map.
    """

    title: str
    tables: Mapping[str, Sequence[Mapping[str, object]]]
    tree: object
    figures: Sequence[Figure]
    lines: Sequence[str]
    maps: Sequence[HeatMap] = ()


def save_folder(findings: Findings, folder: Path) -> list[str]:
    """Write all of it; what to tell of that."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            "--out", str(folder), f"cannot be made ({error.strerror})", "choose another folder"
        ) from None
    found = {name: rows for name, rows in findings.tables.items() if rows}
    for name, rows in found.items():
        save_text(folder / f"{name}.csv", render_csv(list(rows[0]), rows))
    save_text(folder / "study.json", render_json(findings.tree))
    drawn = can_draw()
    if drawn:
        mapped = {each.name for each in findings.maps}
        save_figures(folder, [each for each in findings.figures if each.name not in mapped])
        for each in findings.maps:
            save_heatmap(folder, each)
    files = [*(f"{name}.csv" for name in found), "study.json"]
    page = render_index(findings.title, findings.lines, findings.figures, files, drawn)
    save_text(folder / "index.html", page)
    return [f"Written: {folder / 'index.html'}", *([] if drawn else [HOW_TO_GET])]
