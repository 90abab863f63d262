import random
from pathlib import Path

import pytest

from tests.tables import PROFILE
from trainwright.cost.load import load_constants
from trainwright.cost.profile_seal import seal_profile
from trainwright.cost.source import build_source, load_profile
from trainwright.errors import BadInput, TrainwrightError

SEALED = seal_profile(PROFILE)
CHANGED = "The profile's device or network was edited or damaged since it was written."


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "profile.toml"
    file.write_text(SEALED)
    return file


def notes(path: Path) -> tuple[str, ...]:
    _, cluster = load_profile(path)
    return build_source(None, str(path), cluster, load_constants(), None).notes


def test_a_sealed_profile_is_that_without_checksums(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "plain.toml"
    other.write_text(PROFILE)
    assert load_profile(path) == load_profile(other)
    assert CHANGED not in notes(path)


def test_a_measurement_that_was_changed_is_refused_with_the_remedy(path: Path) -> None:
    path.write_text(SEALED.replace('"1 ms"', '"2 ms"', 1))
    assert path.read_text() != SEALED
    with pytest.raises(
        BadInput, match=r'was edited or damaged.*measure again, or remove the line "checksum"'
    ):
        load_profile(path)
    kept = [line for line in path.read_text().splitlines() if not line.startswith("checksum")]
    path.write_text("\n".join(kept))
    load_profile(path)


def test_count_power_price_and_comments_may_be_changed(path: Path) -> None:
    lines = ["# mine", *SEALED.splitlines()]
    for number, line in enumerate(lines):
        if line.startswith("count"):
            lines[number] = "count = 64"
        if line.startswith("price_per_hour"):
            lines[number] = 'price_per_hour = "7 $/h"'
    path.write_text("\n".join(lines))
    found, cluster = load_profile(path)
    assert cluster.count == 64
    assert cluster.device.price_per_hour == 7
    assert not found.changed


def test_another_change_of_the_cluster_is_told_with_every_prediction(path: Path) -> None:
    path.write_text(SEALED.replace('capacity = "8 GiB"', 'capacity = "9 GiB"'))
    assert CHANGED in notes(path)


@pytest.mark.parametrize("seed", range(300))
def test_a_flipped_bit_is_refused_or_told_or_changes_no_value(path: Path, seed: int) -> None:
    content, chosen = bytearray(SEALED.encode()), random.Random(seed)
    before = load_profile(path)
    bit = chosen.randrange(8 * len(content))
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    try:
        after = load_profile(path)
    except TrainwrightError:
        return
    users = ("count", "idle_power", "peak_power", "price_per_hour")
    start = content.rfind(b"\n", 0, bit // 8) + 1
    assert after[0].changed or after == before or SEALED.encode()[start:].decode().startswith(users)
