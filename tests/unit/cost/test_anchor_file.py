"""Anchor files: what is written is read again, and what is wrong is named."""

from pathlib import Path

import pytest

from trainwright.cost.anchor import Anchor, AnchorRun, RunConditions
from trainwright.cost.anchor_file import AnchorProvenance, load_anchor, save_anchor
from trainwright.errors import BadInput

RUN = AnchorRun(
    id='the "first"\\run', model="llama3-8b",
    conditions=RunConditions(
        stack="megatron-core", device="h100", family="hopper", precision="fp8", layers=32,
        parameters=8_030_261_248, release="0.9",
    ),
    step_s=3.5, predicted_step_s=3.25, memory_bytes=58.0 * 2**30, predicted_memory_bytes=56.5 * 2**30,
)  # fmt: skip
PROVENANCE = AnchorProvenance(made="2026-11-18", table="my_runs.csv", cluster="h100:64")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "anchor.toml"
    save_anchor(path, Anchor(name="my_runs.csv", runs=(RUN,)), PROVENANCE)
    return path


def test_a_saved_anchor_is_read_as_it_was(path: Path) -> None:
    assert load_anchor(path) == Anchor(name="anchor.toml", runs=(RUN,))


def test_a_file_has_units_and_says_where_its_runs_are_from(path: Path) -> None:
    text = path.read_text()
    for line in ('made = "2026-11-18"', 'table = "my_runs.csv"', 'step_time = "3.5 s"', 'memory = "58 GiB"'):
        assert line in text


def test_no_draft_is_left_beside_a_file(path: Path) -> None:
    assert [each.name for each in path.parent.iterdir()] == ["anchor.toml"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("made =", "mode =", 'key "mode": no such name; did you mean "made"'),
        ("step_time =", "step_tine =", 'key "step_tine": no such name; did you mean "step_time"'),
        ('"3.5 s"', "3.5", "step_time 3.5: not a quantity in s"),
        ('"3.5 s"', '"3.5 GiB"', "unit 'GiB' is not one of s"),
        ('"3.5 s"', '"0 s"', "is not above zero"),
        ('\nstep_time = "3.5 s"', "", "needs both or neither"),
        ("layers = 32", "layers = 0", "layers 0: is not a whole number above zero"),
        ('precision = "fp8"', 'precision = "fp9"', 'did you mean "fp8"'),
        ('stack = "megatron-core"', "stack = 1", "stack 1: is not text"),
        ('stack = "megatron-core"\n', "", "stack: is missing"),
        ("[[run]]", "[run]", "is not a list of at least one"),
        ("[[run]]", "[[run]", "is not TOML"),
        ('constants = "', 'constants = "0', "was made with other constants"),
    ],
)
def test_a_wrong_file_is_refused_by_name(path: Path, old: str, new: str, message: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(BadInput, match=message.replace("[", r"\[")):
        load_anchor(path)


def test_a_run_without_any_figure_is_refused(path: Path) -> None:
    kept = [line for line in path.read_text().splitlines() if "time =" not in line and "memory =" not in line]
    path.write_text("\n".join(kept))
    with pytest.raises(BadInput, match="has neither step_time nor memory"):
        load_anchor(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        load_anchor(tmp_path / "none.toml")
