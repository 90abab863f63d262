"""`trainwright sweep` as users run it."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.commands import LIMIT_S, fails, failure, heed_interrupts, trainwright
from tests.unit.sweep.small import TEXT, contents


def test_a_sweep_is_run_asked_and_checked(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(TEXT)
    out = str(tmp_path / "out")
    result = trainwright("sweep", str(tmp_path / "small.toml"), "--out", out, "--workers", "1")
    assert result.returncode == 0, result.stderr
    assert "18 rows of 18 points" in result.stdout
    assert "The fastest" in result.stdout
    told = trainwright("sweep", "query", out, "select count(*) as n, min(step_s) as s from points", "--json")
    assert json.loads(told.stdout)[0]["n"] == 18
    table = trainwright("sweep", "query", out, "select point from points order by 1 limit 2", "--csv")
    assert table.stdout == "point\n0\n1\n"
    assert "6 of 6 parts are as they were written; finished" in trainwright("sweep", "check", out).stdout


def test_an_interrupt_says_how_to_go_on(tmp_path: Path) -> None:
    text = TEXT.replace("factor = 2", "count = 4000").replace("chunk = 3", "chunk = 20")
    (tmp_path / "long.toml").write_text(text)
    out = tmp_path / "out"
    command = [sys.executable, "-m", "trainwright.cli.main", "sweep", str(tmp_path / "long.toml")]
    process = subprocess.Popen(
        [*command, "--out", str(out), "--workers", "2"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts,
    )  # fmt: skip
    while not list(out.glob("points-*")) and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130, errors
    assert f"interrupted; what is finished is in {out}: run the same command again to resume" in errors
    assert "Traceback" not in errors
    names = set(contents(out))
    manifest = json.loads((out / "_manifest.json").read_text())
    assert names == {"_manifest.json", "_sweep.toml", *(part["file"] for part in manifest["parts"])}


def test_an_example_is_a_sweep(tmp_path: Path) -> None:
    assert trainwright("sweep", "example").stdout.startswith("# What more memory")
    assert "did you mean" in fails("sweep", "example", "memory")


def test_mistakes_are_told_in_a_line(tmp_path: Path) -> None:
    assert "does not exist" in fails("sweep", "nowhere.toml")
    assert "needs a folder and a query" in fails("sweep", "query", str(tmp_path))
    assert "has no _manifest.json" in fails("sweep", "check", str(tmp_path))
    assert "is none of query, plot" in fails("sweep", "qeury", "a", "b")
    assert "--x" in fails("sweep", "plot", str(tmp_path))


def test_a_ray_cluster_that_is_not_there_is_told(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(TEXT)
    arguments = (
        "sweep",
        str(tmp_path / "small.toml"),
        "--out",
        str(tmp_path / "out"),
        "--ray",
        "127.0.0.1:1",
    )
    assert "--ray" in failure(trainwright(*arguments), 1)
