from pathlib import Path

from trainwright.runtime.shelf import MARKER, discard, kept_checkpoints, new_place, publish, tidy


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
