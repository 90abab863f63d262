"""Reports: one file with everything in it, of the same figures as the terminal's."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from trainwright.cli.main import main
from trainwright.report.figures import Axis, Figure, Grid, Series
from trainwright.report.page import Page, Rows, render_page

pytest.importorskip("matplotlib")


class Tags(HTMLParser):
    """Every attribute of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes |= {name for name, _ in attrs}


def page(**changes: object) -> Page:
    values: dict[str, object] = {
        "title": "T", "question": ("Why?",), "answer": ("Because.",), "figures": (), "tables": (),
        "assumptions": ("none",), "command": "trainwright plan a b",
    }  # fmt: skip
    return Page(**{**values, **changes})  # type: ignore[arg-type]


def test_a_report_has_question_answer_assumptions_and_command_and_loads_nothing() -> None:
    html = render_page(page(tables=(Rows(title="R", rows=[{"a": 1.5, "b": None, "c": True}]),)))
    for text in ("Why?", "Because.", "none", "trainwright plan a b", "<td>1.5</td>", "<td>yes</td>"):
        assert text in html
    tags = Tags()
    tags.feed(html)
    assert not {"src", "href"} & tags.attributes


def test_text_that_looks_like_a_script_stays_text() -> None:
    bad = "</script><script>alert(1)</script>"
    figure = Figure(
        name="f", title=bad, x=Axis(title=bad), y=Axis(title="y"),
        series=(Series(name=bad, x=(1.0,), y=(2.0,)),),
    )  # fmt: skip
    html = render_page(page(title=bad, question=(bad,), figures=(figure,)))
    assert bad not in html
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert data
    assert json.loads(data[1])["figures"][0]["title"] == bad


def test_a_grid_must_be_rectangular() -> None:
    with pytest.raises(ValueError, match="not 2 rows of 2 values"):
        Grid(columns=("a", "b"), rows=("c", "d"), values=((1.0, 2.0), (3.0,)), title="t")


def test_plan_writes_a_report_and_pictures_of_its_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report, figures = tmp_path / "r.html", tmp_path / "f"
    assert main(["plan", "gpt2", "h100:8", "--report", str(report), "--figures", str(figures)]) == 0
    html = report.read_text()
    assert "trainwright plan gpt2 h100:8" in html
    assert "Where the step&#x27;s time goes" in html
    assert len(html) < 1_600_000
    assert {each.suffix for each in figures.iterdir()} == {".png", ".svg"}
    assert (figures / "memory.png").read_bytes().startswith(b"\x89PNG")
    assert f"Written: {report}" in capsys.readouterr().out


def test_simulate_reports_its_timeline_and_the_memory_of_each_stage(tmp_path: Path) -> None:
    report = tmp_path / "r.html"
    assert (
        main(["simulate", "gpt2", "h100:8", "dp4", "pp2", "mb1", "--batch", "32", "--report", str(report)])
        == 0
    )
    data = re.search(r'id="data">(.*?)</script>', report.read_text(), re.DOTALL)
    assert data
    blocks = json.loads(data[1])["blocks"]
    assert len(blocks["places"]) == 2
    assert set(blocks["cells"]) >= {"F", "B"}
    assert max(blocks["end_s"]) <= blocks["step_s"] * 1.0001


def test_pictures_into_a_file_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "f").write_text("")
    assert main(["plan", "gpt2", "h100:8", "--figures", str(tmp_path / "f" / "g")]) == 1
    assert "cannot be made" in capsys.readouterr().err
