"""A dataset can be asked anything, and nothing else can be done through it."""

from pathlib import Path

import pytest

from tests.unit.sweep.small import small_sweep
from trainwright.errors import BadInput, UnknownName
from trainwright.sweep.plot import Ask, plot
from trainwright.sweep.query import query
from trainwright.sweep.run import run_sweep

pytest.importorskip("duckdb")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sweep") / "out"
    run_sweep(small_sweep(), path, workers=1)
    return path


def test_sql_is_answered(folder: Path) -> None:
    answer = query(folder, "select capacity, count(*) as n from points group by capacity order by capacity")
    assert answer.columns == ("capacity", "n")
    assert list(answer.rows) == [(20e9, 6), (80e9, 6), (160e9, 6)]


@pytest.mark.parametrize(
    "sql",
    [
        "copy points to '{}/stolen.csv'", "select * from read_csv('/etc/passwd')", "attach '{}/x.db'",
        "set enable_external_access = true", "select * from '{}/_manifest.json'", "install httpfs",
    ],
)  # fmt: skip
def test_nothing_can_be_read_or_written_beside_it(folder: Path, tmp_path: Path, sql: str) -> None:
    with pytest.raises(BadInput, match="query"):
        list(query(folder, sql.format(tmp_path)).rows)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("sql", ["select nothing from points", "selekt 1", "", "select * from elsewhere"])
def test_a_query_that_fails_says_where_columns_are(folder: Path, sql: str) -> None:
    with pytest.raises(BadInput, match=r'its columns: "describe points"|has no result'):
        list(query(folder, sql).rows)


def test_a_folder_that_is_no_sweep_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"has no _manifest\.json"):
        query(tmp_path, "select 1")


def test_a_heat_map_and_lines_are_drawn(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    pytest.importorskip("matplotlib")
    page, picture = plot(folder, Ask(x="capacity", y="inner", z="step_s"), tmp_path)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "160 G" in page.read_text()
    page, picture = plot(folder, Ask(x="inner", y="mfu", color="compute", best="max", log=True), tmp_path)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "compute 2" in page.read_text()


def test_a_figure_of_a_column_that_is_not_there_is_told(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    with pytest.raises(UnknownName, match='--z "stepps": no such name; did you mean "step_s"'):
        plot(folder, Ask(x="capacity", y="inner", z="stepps"), tmp_path)
    with pytest.raises(BadInput, match="leaves no points"):
        plot(folder, Ask(x="capacity", y="inner", z="step_s", where="step_s < 0"), tmp_path)
