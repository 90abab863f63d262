from pathlib import Path

import pytest

from trainwright.checksum import digest
from trainwright.runtime.stored_chunks import (
    StoredChunk,
    faults,
    parse_chunks,
    render_chunks,
    share,
    stored_chunks,
)

CONTENT = b"weights moments"


def chunk(name: str, first: int, last: int, file: str = "data") -> StoredChunk:
    return StoredChunk(file=file, name=name, first=first, last=last, sha256=digest(CONTENT[first:last]))


CHUNKS = (chunk("w[0:7]", 0, 7), chunk("m[0:8]", 7, 15))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "data").write_bytes(CONTENT)
    (tmp_path / "other").write_bytes(b"x")
    return tmp_path


def test_a_list_of_chunks_is_read_back(place: Path) -> None:
    listed = tuple(stored_chunks(place, CHUNKS))
    assert [each.name for each in listed] == ["w[0:7]", "m[0:8]", ""]
    assert parse_chunks(render_chunks(listed)) == listed


def test_an_intact_directory_has_no_faults(place: Path) -> None:
    assert list(faults(place, tuple(stored_chunks(place, CHUNKS)))) == []


def test_a_fault_names_the_file_and_the_chunk(place: Path) -> None:
    listed = tuple(stored_chunks(place, CHUNKS))
    (place / "data").write_bytes(b"weights mOments")
    (place / "other").unlink()
    assert list(faults(place, listed)) == ["data, chunk m[0:8]: its checksum differs", "other is missing"]


@pytest.mark.parametrize("known", [CHUNKS[:1], CHUNKS[1:], (*CHUNKS, chunk("", 0, 1, "gone"))])
def test_chunks_that_are_not_all_of_a_file_are_refused_when_it_is_saved(
    place: Path, known: tuple[StoredChunk, ...]
) -> None:
    with pytest.raises(OSError, match=r"other chunks than were written|is missing"):
        list(stored_chunks(place, known))


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_each_chunk_falls_to_one_process(count: int) -> None:
    listed = tuple(chunk(str(number), number, number + 1) for number in range(5))
    shares = [share(listed, rank, count) for rank in range(count)]
    assert sorted(each.name for found in shares for each in found) == [str(number) for number in range(5)]
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_file_without_bytes_is_verified_by_someone() -> None:
    empty = (chunk("", 0, 0), chunk("", 0, 0, "other"))
    assert [each.file for rank in (0, 1) for each in share(empty, rank, 2)] == ["data", "other"]
