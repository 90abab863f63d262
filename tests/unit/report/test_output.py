"""Tables and files: plain where there is no terminal, whole or not there."""

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from trainwright.errors import BadInput
from trainwright.output_file import save_text
from trainwright.plan.strategy import Strategy
from trainwright.report.files import render_csv, render_json
from trainwright.report.run_lines import render_range
from trainwright.report.tables import indented, open_console, show, table


def shown(*parts: object) -> str:
    stream = io.StringIO()
    show(open_console(stream), *parts)
    return stream.getvalue()


def test_a_table_without_a_terminal_is_plain_and_at_most_100_columns() -> None:
    text = shown(table("title", ["name", "value"], [["long words " * 30, "1"]]))
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 100


def test_no_line_ends_in_blanks() -> None:
    assert all(line == line.rstrip() for line in shown("a  ", table("", ["x"], [["1"]])).splitlines())


def test_brackets_are_text_and_not_markup() -> None:
    assert "[bold]x[/bold]" in shown(table("", ["x"], [["[bold]x[/bold]"]]))


def test_a_long_sentence_continues_further_in() -> None:
    lines = indented(open_console(io.StringIO()), "word " * 40).splitlines()
    assert lines[0].startswith("  word")
    assert lines[1].startswith("    word")


def test_a_range_has_one_unit() -> None:
    assert render_range(0.9, 1.25) == "0.9–1.25 s"


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    save_text(path, "old")
    save_text(path, "new")
    assert path.read_text(encoding="utf-8") == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_is_an_error_of_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be written"):
        save_text(tmp_path / "missing" / "out.json", "text")


def test_json_of_a_strategy_is_its_line_and_its_knobs() -> None:
    @dataclass
    class Holder:
        strategy: Strategy

    value = json.loads(render_json({"plans": (Holder(Strategy(dp=8, tp=2)),)}))
    assert value["plans"][0]["strategy"]["text"] == "dp8 tp2 mb1 zero0 bf16"
    assert value["plans"][0]["strategy"]["tp"] == 2


def test_csv_quotes_what_needs_it() -> None:
    text = render_csv(["a", "b"], [{"a": 'say "x", y', "b": 1, "ignored": 2}])
    assert list(csv.DictReader(io.StringIO(text))) == [{"a": 'say "x", y', "b": "1"}]


def test_json_has_no_infinities() -> None:
    assert json.loads(render_json({"a": float("nan"), "b": float("inf"), "c": 1.5})) == {
        "a": None,
        "b": None,
        "c": 1.5,
    }
