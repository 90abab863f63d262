"""Damaged checkpoints, as the command meets them."""

import json
import re
import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch")

from tests.runtime import launching as launched
from trainwright.checksum import Seal, check_seal
from trainwright.runtime.shelf import MARKER, kept_checkpoints
from trainwright.runtime.stored_chunks import CHECKSUMS

STEPS = 9


def arguments(directory: Path, steps: int = STEPS) -> list[str]:
    """A run of a small model with a checkpoint every third step."""
    return [
        launched.build_model(directory), "dp2", "--steps", str(steps), "--rate", "1e-2", "--every", "3",
        "--checkpoint", str(directory / "kept"), "--metrics", str(directory / "numbers.jsonl"),
    ]  # fmt: skip


def apart(directory: Path) -> list[str]:
    return launched.apart(directory, "kept", "diloco every=4", 2, 16)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with what a run has left that nothing happened to."""
    path = tmp_path_factory.mktemp("trained")
    result = launched.run(*arguments(path))
    assert result.returncode == 0, result.stderr
    return path


@pytest.fixture
def copied(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "copied"))


def flip(path: Path, at: int = -1000, count: int = 1) -> None:
    """Flip a bit of each of `count` bytes that end at a place."""
    content = bytearray(path.read_bytes())
    for place in range(at - count + 1, at + 1):
        content[place] ^= 1
    path.write_bytes(content)


def last(directory: Path) -> Path:
    return kept_checkpoints(directory / "kept")[-1].path


@pytest.mark.parametrize(("count", "others"), [(1, ""), (4096, r", and \d+ more")])
def test_a_run_resumes_from_the_checkpoint_before_a_damaged_one(
    trained: Path, copied: Path, count: int, others: str
) -> None:
    flip(last(copied) / "__1_0.distcp", count=count)
    result = launched.run(*arguments(copied), "--resume")
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("\n") == 1
    assert "step-00000009 is damaged (__1_0.distcp, chunk " in result.stderr
    said = r"\]: its checksum differs%s\), and is now called damaged-step-00000009; the one of step 6 is used"
    assert re.search(said % others, result.stderr)
    assert "resumes after step 6\n" in result.stdout
    assert launched.losses(copied / "numbers.jsonl") == launched.losses(trained / "numbers.jsonl")
    assert [each.step for each in kept_checkpoints(copied / "kept")] == [3, 6, 9]


def test_the_last_of_several_damaged_ones_is_found_before_the_first_that_is_intact(
    trained: Path, copied: Path
) -> None:
    (last(copied) / ".metadata").unlink()
    six, nine = copied / "kept" / "step-00000006", copied / "kept" / "step-00000009"
    shutil.copy(nine / "__0_0.distcp", six / "__0_0.distcp")  # of the same size, but of another step
    result = launched.run(*arguments(copied), "--resume")
    assert result.returncode == 0, result.stderr
    assert "step-00000009 is damaged (.metadata is missing)" in result.stderr
    assert "step-00000006 is damaged (__0_0.distcp, chunk " in result.stderr
    assert launched.losses(copied / "numbers.jsonl") == launched.losses(trained / "numbers.jsonl")


def test_where_none_is_intact_the_run_ends_and_says_why(copied: Path) -> None:
    for each in kept_checkpoints(copied / "kept"):
        flip(each.path / CHECKSUMS)
    result = launched.run(*arguments(copied), "--resume")
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert f"has no intact checkpoint (step-00000009: {CHECKSUMS}: its checksum differs; " in result.stderr
    assert "restore one from a copy, or name another directory" in result.stderr
    assert len(kept_checkpoints(copied / "kept")) == 3


def test_a_run_is_not_started_over_damaged_checkpoints(copied: Path) -> None:
    for each in kept_checkpoints(copied / "kept"):
        flip(each.path / MARKER, 9)
    result = launched.run(*arguments(copied))
    assert result.returncode == 1
    assert "has a checkpoint of step 9; add --resume, or name another directory" in result.stderr


def test_a_checkpoint_of_an_earlier_version_is_used_and_said_to_be_unverified(
    trained: Path, copied: Path
) -> None:
    shutil.rmtree(last(copied))
    for each in kept_checkpoints(copied / "kept"):
        (each.path / CHECKSUMS).unlink()
        table = {key: value for key, value in each.note.items() if not key.startswith("checksum")}
        del table["files"][CHECKSUMS]
        (each.path / MARKER).write_text(json.dumps(table, indent=1))
        assert check_seal((each.path / MARKER).read_bytes()) is Seal.ABSENT
    result = launched.run(*arguments(copied), "--resume")
    assert result.returncode == 0, result.stderr
    assert "step-00000006 has no checksums (an earlier version wrote it): it is not verified" in result.stderr
    assert launched.losses(copied / "numbers.jsonl") == launched.losses(trained / "numbers.jsonl")


def test_processes_that_are_started_again_verify_too(tmp_path: Path) -> None:
    calm, harmed = tmp_path / "calm", tmp_path / "harmed"
    for path in (calm, harmed):
        path.mkdir()
    assert launched.run(*arguments(calm, 24)).returncode == 0
    process = launched.start(*arguments(harmed, 24), "--elastic")
    launched.wait_for_step(process, harmed / "numbers.jsonl", 10)
    launched.kill(launched.ranks_of(process)[0])  # the one that gives checkpoints their names
    before = last(harmed)
    flip(before / "__0_0.distcp")
    result = launched.finish(process)
    assert result.returncode == 0, result.stderr
    assert f"{before.name} is damaged (__0_0.distcp" in result.stderr
    found, expected = (launched.losses(path / "numbers.jsonl") for path in (harmed, calm))
    assert [loss for _, loss in found] == pytest.approx([loss for _, loss in expected], abs=1e-4)


@pytest.mark.parametrize("name", ["worker-1.pt", "weights.pt"])
def test_workers_of_an_algorithm_resume_from_the_checkpoint_before_a_damaged_one(
    tmp_path: Path, name: str
) -> None:
    first = launched.run(*apart(tmp_path))
    assert first.returncode == 0, first.stderr
    expected = launched.losses(tmp_path / "kept.jsonl")
    flip(last(tmp_path) / name)
    again = launched.run(*apart(tmp_path), "--resume")
    assert again.returncode == 0, again.stderr
    assert f"step-00000016 is damaged ({name}: its checksum differs)" in again.stderr
    assert "resumes after step 8" in again.stdout
    assert launched.losses(tmp_path / "kept.jsonl") == expected
