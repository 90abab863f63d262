"""The folder that a study leaves: tables, figures where they can be drawn, and an index of them."""

import argparse
from collections.abc import Callable
from pathlib import Path

from trainwright.api.findings import Findings
from trainwright.api.pages import findings_page
from trainwright.cli.pages import save_pages, wanted
from trainwright.errors import BadInput
from trainwright.output_file import save_text
from trainwright.report import figures
from trainwright.report.figures import HOW_TO_GET, render_index, save_figures
from trainwright.report.files import render_csv, render_json


def save_findings(options: argparse.Namespace, findings_of: Callable[[], Findings]) -> list[str]:
    """A folder, a report, pictures, as the options ask; what to tell of them."""
    if not (options.out or wanted(options)):
        return []
    findings = findings_of()
    told = save_folder(findings, Path(options.out)) if options.out else []
    return [*told, *(save_pages(options, findings_page(findings, options.asked)) if wanted(options) else [])]


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
    drawn = figures.can_draw()
    if drawn:
        save_figures(folder, findings.figures)
    files = [*(f"{name}.csv" for name in found), "study.json"]
    page = render_index(findings.title, findings.lines, findings.figures, files, drawn)
    save_text(folder / "index.html", page)
    return [f"Written: {folder / 'index.html'}", *([] if drawn else [HOW_TO_GET])]
