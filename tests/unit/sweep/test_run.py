"""A dataset is the same however it came about, and what goes wrong leaves what was finished."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.sweep.small import TEXT, changed, contents, small_sweep
from trainwright.cli.main import main
from trainwright.errors import BadInput, TrainwrightError
from trainwright.sweep import dataset
from trainwright.sweep.dataset import check_parts, load_manifest
from trainwright.sweep.query import query
from trainwright.sweep.run import Cancelled, run_sweep

pytest.importorskip("pyarrow")
PARTS = 6  # of 18 points, 3 in each


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset of the small sweep, made without interruption by one process."""
    folder = tmp_path_factory.mktemp("whole") / "out"
    run_sweep(small_sweep(), folder, workers=1)
    return folder


def after(parts: int) -> Callable[[], bool]:
    """Says stop when it was asked so often: once before each part."""
    asked = iter(range(10**9))
    return lambda: next(asked) >= parts


def stop_after(parts: int, folder: Path, finished: int) -> None:
    with pytest.raises(Cancelled, match="run the same command again to go on"):
        run_sweep(small_sweep(), folder, workers=1, cancelled=after(parts))
    assert len(load_manifest(folder).parts) == finished


def test_a_dataset_holds_every_point_once(whole: Path) -> None:
    manifest = load_manifest(whole)
    assert manifest.finished
    assert len(manifest.parts) == PARTS
    rows = list(query(whole, "select point, feasible, strategy, why, step_s from points order by point").rows)
    assert [row[0] for row in rows] == list(range(18))
    for _, feasible, strategy, why, step_s in rows:
        assert (strategy is not None) == (step_s is not None) == feasible == (why == "")
    assert {row[1] for row in rows} == {True, False}


def test_the_folder_is_a_dataset_for_other_tools(whole: Path) -> None:
    arrow = pytest.importorskip("pyarrow.dataset")
    found = arrow.dataset(whole, format="parquet")
    assert found.count_rows() == 18
    assert {"point", "capacity", "inner", "step_s", "strategy"} <= set(found.schema.names)


def test_several_processes_make_the_same_bytes(whole: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    run_sweep(small_sweep(), tmp_path, workers=2, progress=lambda done, of, name: told.append((done, of)))
    assert contents(tmp_path) == contents(whole)
    assert told[0] == (0, 18)
    assert told[-1] == (18, 18)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_what_was_stopped_goes_on_where_it_was(whole: Path, tmp_path: Path) -> None:
    stop_after(1, tmp_path, finished=1)
    stop_after(2, tmp_path, finished=3)
    first = (tmp_path / "points-000000.parquet").stat()
    run_sweep(small_sweep(), tmp_path, workers=1)
    assert contents(tmp_path) == contents(whole)
    assert (tmp_path / "points-000000.parquet").stat().st_mtime_ns == first.st_mtime_ns  # not made again


def test_a_finished_sweep_is_not_made_again(whole: Path) -> None:
    before = contents(whole)
    assert run_sweep(small_sweep(), whole, workers=1).finished
    assert contents(whole) == before


def test_another_sweep_is_refused(whole: Path) -> None:
    with pytest.raises(BadInput, match=r"was made from another sweep: compare with .*_sweep\.toml"):
        run_sweep(changed('"20 GB"', '"21 GB"'), whole)


@pytest.mark.parametrize("name", ["trainwright", "pyarrow"])
def test_another_version_is_refused(whole: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    now = dict(dataset.versions())
    monkeypatch.setattr(dataset, "versions", lambda: now | {name: "9.9"})
    with pytest.raises(BadInput, match=f"was made with {name} {now[name]}, and this is 9.9; choose another"):
        run_sweep(small_sweep(), whole)


def test_other_code_is_refused(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "program_digest", lambda: "other")
    with pytest.raises(BadInput, match="was made with other code or constants"):
        run_sweep(small_sweep(), whole)


def test_a_folder_of_other_things_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(BadInput, match=r"holds other files \(thesis.tex\)"):
        run_sweep(small_sweep(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("harm", ["flipped", "cut", "gone"])
def test_a_broken_part_is_told_and_made_anew(whole: Path, tmp_path: Path, harm: str) -> None:
    for name, content in contents(whole).items():
        (tmp_path / name).write_bytes(content)
    path = tmp_path / "points-000002.parquet"
    good = path.read_bytes()
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes(good[:-9] if harm == "cut" else good[:99] + bytes([good[99] ^ 1]) + good[100:])
    with pytest.raises(
        BadInput, match=r"points-000002\.parquet.*run the sweep again: it makes that part anew"
    ):
        check_parts(tmp_path, load_manifest(tmp_path))
    run_sweep(small_sweep(), tmp_path, workers=1)
    assert contents(tmp_path) == contents(whole)


def test_a_query_tells_of_a_part_that_is_missing(whole: Path, tmp_path: Path) -> None:
    for name, content in contents(whole).items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "points-000004.parquet").unlink()
    with pytest.raises(BadInput, match=r"points-000004\.parquet.: is missing; run the sweep again"):
        query(tmp_path, "select 1 from points")


def test_a_query_does_not_answer_from_a_part_with_a_flipped_bit(whole: Path, tmp_path: Path) -> None:
    for name, content in contents(whole).items():
        (tmp_path / name).write_bytes(content)
    path = tmp_path / "points-000003.parquet"
    good = path.read_bytes()
    for at in range(0, len(good), len(good) // 40):
        path.unlink()
        path.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
        with pytest.raises(BadInput, match=r"points-000003\.parquet.: is damaged: its checksum differs"):
            query(tmp_path, "select count(*) from points")


def test_a_manifest_with_a_flipped_bit_is_neither_asked_nor_gone_on_with(whole: Path, tmp_path: Path) -> None:
    for name, content in contents(whole).items():
        (tmp_path / name).write_bytes(content)
    path = tmp_path / "_manifest.json"
    good = path.read_bytes()
    for at in range(0, len(good), 7):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
        with pytest.raises(BadInput, match=r"_manifest\.json.: was edited or damaged since it was written"):
            query(tmp_path, "select 1 from points")
    with pytest.raises(BadInput, match="restore a copy of it, or remove the folder and sweep again"):
        run_sweep(small_sweep(), tmp_path, workers=1)


def test_a_dataset_of_an_earlier_version_is_asked_and_said_to_be_unverified(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, content in contents(whole).items():
        (tmp_path / name).write_bytes(content)
    table = json.loads((tmp_path / "_manifest.json").read_text())
    del table["checksum"]
    (tmp_path / "_manifest.json").write_text(json.dumps(table | {"format": 1}))
    assert main(["sweep", "query", str(tmp_path), "select count(*) from points"]) == 0
    shown = capsys.readouterr()
    assert "18" in shown.out
    assert "_manifest.json has no checksum (an earlier version wrote it): it is not verified" in shown.err


def test_a_manifest_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "_manifest.json").write_text("{}")
    with pytest.raises(BadInput, match="is not a manifest of this program"):
        run_sweep(small_sweep(), tmp_path)


def test_a_disk_that_fills_up_leaves_what_was_finished(whole: Path, tmp_path: Path) -> None:
    # A file that leads to /dev/full: the device whose disk is always full.
    def fill(done: int, planned: int, name: str) -> None:
        if done == 9:
            (tmp_path / "points-000003.parquet").symlink_to("/dev/full")

    with pytest.raises(
        TrainwrightError, match=r"points-000003.*No space left on device.*what is finished stays"
    ):
        run_sweep(small_sweep(), tmp_path, workers=1, progress=fill)
    assert len(load_manifest(tmp_path).parts) == 3
    assert next(query(tmp_path, "select count(*) from points").rows) == (9,)
    (tmp_path / "points-000003.parquet").unlink()
    run_sweep(small_sweep(), tmp_path, workers=1)
    assert contents(tmp_path) == contents(whole)


LIMITED = """
import resource, sys
from trainwright.cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, (16_000, 16_000))
sys.exit(main(["sweep", sys.argv[1], "--out", sys.argv[2], "--workers", "1"]))
"""


def test_a_quota_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(TEXT)
    command = [sys.executable, "-c", LIMITED, str(tmp_path / "small.toml"), str(tmp_path / "out")]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert result.returncode == 1
    line = result.stderr.strip().splitlines()[-1]
    assert line.startswith('trainwright: file "')
    assert "cannot be written (File too large); make room" in line
    assert "Traceback" not in result.stderr
    assert json.loads((tmp_path / "out" / "_manifest.json").read_text())["parts"] == []


@pytest.mark.parametrize("where", ["file/under", "/proc/nothing"])
def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"--out .*cannot be made"):
        run_sweep(small_sweep(), tmp_path / where)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_not_ours_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with pytest.raises(TrainwrightError, match="cannot be written"):
        run_sweep(small_sweep(), tmp_path)


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    def meddle(done: int, planned: int, name: str) -> None:
        with pytest.raises(BadInput, match="another run is at work here"):
            run_sweep(small_sweep(), tmp_path)

    run_sweep(small_sweep(), tmp_path, workers=1, progress=meddle)


def test_all_rows_are_the_same_bytes_too(tmp_path: Path) -> None:
    sweep = small_sweep('rows = "all"\nwhere = "compute < 2"\n')
    run_sweep(sweep, tmp_path / "one", workers=1)
    run_sweep(sweep, tmp_path / "two", workers=2)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    found = next(
        query(tmp_path / "one", "select count(distinct point), min(compute), max(compute) from points").rows
    )
    assert found == (9, 1.0, 1.0)
