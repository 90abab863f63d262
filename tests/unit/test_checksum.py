import io
import json
import random
from pathlib import Path

import pytest

from trainwright.checksum import (
    DigestWriter,
    Seal,
    check_seal,
    digest,
    digest_file,
    digest_range,
    seal,
    seal_pieces,
)

TABLE = {"step": 3, "files": {"part": 5}}


def test_a_sealed_text_is_the_same_json_with_one_key_more() -> None:
    found = json.loads(seal(json.dumps(TABLE, indent=1)))
    assert found.pop("checksum").startswith("sha256:")
    assert found == TABLE


def test_every_flipped_bit_of_a_sealed_text_is_seen() -> None:
    content = seal(json.dumps(TABLE)).encode()
    assert check_seal(content) is Seal.INTACT
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        assert check_seal(bytes(damaged)) is Seal.BROKEN, bit


@pytest.mark.parametrize("seed", range(200))
def test_bytes_that_are_overwritten_are_seen(seed: int) -> None:
    content, chosen = bytearray(seal(json.dumps(TABLE)).encode()), random.Random(seed)
    first = chosen.randrange(len(content) - 8)
    content[first : first + 8] = b"\0" * 8
    assert check_seal(bytes(content)) is Seal.BROKEN


def test_a_text_without_a_checksum_is_told_from_a_damaged_one() -> None:
    assert check_seal(json.dumps(TABLE).encode()) is Seal.ABSENT
    assert check_seal(b"") is Seal.ABSENT


def test_pieces_are_sealed_as_the_whole() -> None:
    text = json.dumps(TABLE)
    assert "".join(seal_pieces([text[:5], text[5:-1]])) == seal(text)


def test_a_writer_has_the_checksum_of_what_it_passed_on(tmp_path: Path) -> None:
    target = io.BytesIO()
    writer = DigestWriter(target)
    assert writer.write(b"12") == 2
    writer.write(b"345")
    (tmp_path / "file").write_bytes(target.getvalue())
    assert writer.digest == digest(b"12345") == digest_file(tmp_path / "file")


def test_a_range_that_ends_behind_the_file_has_the_checksum_of_what_is_there() -> None:
    assert digest_range(io.BytesIO(b"12345"), 1, 3) == digest(b"23")
    assert digest_range(io.BytesIO(b"12345"), 3, 9) == digest(b"45")
