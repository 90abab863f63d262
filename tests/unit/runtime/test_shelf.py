import json
from pathlib import Path

import pytest

from trainwright.runtime.shelf import (
    MARKER,
    discard,
    kept_checkpoints,
    load_chunks_of,
    named_checkpoints,
    new_place,
    publish,
    set_aside,
    tidy,
)
from trainwright.runtime.stored_chunks import CHECKSUMS, faults


def written(shelf: Path, step: int) -> Path:
    """A checkpoint of one file, before it has a name."""
    place = new_place(shelf, step)
    place.mkdir(parents=True)
    (place / "part").write_bytes(b"12345")
    return place


def steps(shelf: Path) -> list[int]:
    return [each.step for each in kept_checkpoints(shelf)]


def test_a_directory_that_is_not_there_has_no_checkpoints(tmp_path: Path) -> None:
    assert kept_checkpoints(tmp_path / "none") == ()


def test_checkpoints_are_in_the_order_of_their_steps(tmp_path: Path) -> None:
    for step in (10, 9, 100):
        publish(written(tmp_path, step), step, {"model": "tiny"})
    assert steps(tmp_path) == [9, 10, 100]
    assert kept_checkpoints(tmp_path)[0].note["model"] == "tiny"


def test_what_is_not_published_is_not_there(tmp_path: Path) -> None:
    written(tmp_path, 3)
    assert steps(tmp_path) == []


def test_a_checkpoint_with_a_file_missing_or_cut_or_without_a_marker_is_not_there(tmp_path: Path) -> None:
    paths = [publish(written(tmp_path, step), step, {}) for step in (1, 2, 3, 4)]
    (paths[0] / "part").unlink()
    (paths[1] / "part").write_bytes(b"123")
    (paths[2] / MARKER).write_text('{"step": 3, "files": ')
    assert steps(tmp_path) == [4]


def test_only_the_last_few_are_kept_and_nothing_unfinished(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        publish(written(tmp_path, step), step, {})
    written(tmp_path, 4)
    tidy(tmp_path, 2)
    assert steps(tmp_path) == [2, 3]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_step_that_is_published_again_takes_the_place_of_the_first(tmp_path: Path) -> None:
    publish(written(tmp_path, 1), 1, {"model": "first"})
    publish(written(tmp_path, 1), 1, {"model": "second"})
    assert [each.note["model"] for each in kept_checkpoints(tmp_path)] == ["second"]


def test_a_discarded_checkpoint_is_gone(tmp_path: Path) -> None:
    discard(publish(written(tmp_path, 1), 1, {}))
    assert list(tmp_path.iterdir()) == []


def damaged(shelf: Path) -> list[str]:
    """What is wrong with the checkpoints of a directory, contents included."""
    found = []
    for each in named_checkpoints(shelf):
        if not each.fault:
            try:
                found += faults(each.path, load_chunks_of(each))
            except ValueError as error:
                found.append(str(error))
        found += [each.fault] if each.fault else []
    return found


def test_every_bit_of_every_file_is_covered_by_a_checksum(tmp_path: Path) -> None:
    path = publish(written(tmp_path, 1), 1, {"model": "tiny"})
    assert damaged(tmp_path) == []
    for file in sorted(path.iterdir()):
        content = file.read_bytes()
        for at in range(len(content)):
            file.write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
            (fault,) = damaged(tmp_path)
            assert file.name in fault, (file.name, at)
        file.write_bytes(content)
    assert damaged(tmp_path) == []


def test_files_that_are_missing_cut_or_swapped_are_named(tmp_path: Path) -> None:
    first, second = [publish(written(tmp_path, step), step, {}) for step in (1, 2)]
    (first / "part").write_bytes(b"123")
    (second / "part").unlink()
    assert damaged(tmp_path) == ["part has 3 bytes of 5", "part is missing"]
    (first / "part").write_bytes(b"54321")
    (second / "part").write_bytes(b"12345")
    assert damaged(tmp_path) == ["part: its checksum differs"]


def test_a_checkpoint_under_the_name_of_another_step_is_named(tmp_path: Path) -> None:
    publish(written(tmp_path, 1), 1, {}).rename(tmp_path / "step-00000002")
    assert damaged(tmp_path) == [f"{MARKER} is that of step 1"]


@pytest.mark.parametrize("name", [MARKER, CHECKSUMS])
def test_what_checksums_are_read_from_must_be_there(tmp_path: Path, name: str) -> None:
    (publish(written(tmp_path, 1), 1, {}) / name).unlink()
    assert damaged(tmp_path) == [f"{name} is missing"]


def test_a_checkpoint_of_an_earlier_version_is_there_and_not_verifiable(tmp_path: Path) -> None:
    path = publish(written(tmp_path, 1), 1, {})
    (path / CHECKSUMS).unlink()
    (path / MARKER).write_text(json.dumps({"step": 1, "model": "tiny", "files": {"part": 5}}))
    (kept,) = kept_checkpoints(tmp_path)
    assert not kept.verifiable
    assert kept.note["model"] == "tiny"


def test_a_marker_whose_checksum_was_cut_off_is_not_taken_for_an_earlier_version(tmp_path: Path) -> None:
    path = publish(written(tmp_path, 1), 1, {})
    table = json.loads((path / MARKER).read_text())
    (path / MARKER).write_text(json.dumps({"step": 1, "files": table["files"]}))
    assert damaged(tmp_path) == [f"{MARKER}: its checksum differs"]


def test_a_damaged_checkpoint_is_not_counted_and_goes_with_those_of_its_age(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        publish(written(tmp_path, step), step, {})
    assert set_aside(kept_checkpoints(tmp_path)[1]).name == "damaged-step-00000002"
    tidy(tmp_path, 2)
    assert steps(tmp_path) == [1, 3]
    publish(written(tmp_path, 4), 4, {})
    tidy(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000003", "step-00000004"]
