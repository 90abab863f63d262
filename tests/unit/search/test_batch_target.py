"""A batch target is a range of whole sequences around a number of tokens."""

import pytest

from trainwright.errors import BadInput
from trainwright.search.batch_target import (
    BatchTarget,
    build_target,
    parse_batch_tokens,
    parse_tolerance,
    roundness,
)


def target(tokens: float, seq: int = 4096, tolerance: float = 0.03) -> BatchTarget:
    return build_target(tokens, seq, tolerance, "so many", "--batch-tokens")


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("4M", 4 * 2**20), ("16M", 2**24), ("512k", 2**19), ("512K", 2**19), ("1M tokens", 2**20),
        ("63M", 63e6), ("500k", 5e5), ("3.2M", 3.2e6), ("0.5M", 5e5), ("4000000", 4e6), ("4e6", 4e6),
        ("1B", 1e9), ("2G", 2e9),
    ],
)  # fmt: skip
def test_a_power_of_two_before_k_or_m_is_binary(text: str, tokens: float) -> None:
    assert parse_batch_tokens(text, "--batch-tokens") == tokens


def test_the_range_is_of_whole_sequences_within_the_tolerance() -> None:
    # 4,000,000 / 4,096 = 976.6; 3 % less is 947.3 and 3 % more 1,005.9
    assert (target(4e6).low, target(4e6).high) == (948, 1005)
    # 1,000 sequences: the ends of the range belong to it
    assert (target(1000 * 4096).low, target(1000 * 4096).high) == (970, 1030)
    assert (target(4e6, tolerance=0.0).low, target(4e6, tolerance=0.0).high) == (977, 977)


def test_a_range_without_a_whole_number_is_the_nearest() -> None:
    # 4,000,000 / 1,048,576 = 3.81 and no whole number within 3 % of it
    assert (target(4e6, 2**20).low, target(4e6, 2**20).high) == (4, 4)


def test_the_nearest_multiple_is_within_the_range() -> None:
    assert target(4e6).nearest_multiple(48) == 960
    assert target(4e6).nearest_multiple(1) == 977
    assert target(4e6).nearest_multiple(128) is None  # 896 and 1,024


def test_the_batch_asked_for_is_the_roundest_then_what_devices_divide() -> None:
    batches = range(994, 1055)
    assert min(batches, key=lambda batch: roundness(batch, 96, 1024.0)) == 1024
    assert min(batches, key=lambda batch: roundness(batch, 7, 1020.5)) == 1008  # 2^4 x 63 of multiples of 7
    assert min(batches, key=lambda batch: roundness(batch, 64, 1000.2)) == 1024
    assert target(4e6).roundest(128, 2) == [960, 992]  # 2^6 x 15, 2^5 x 31


@pytest.mark.parametrize(
    ("tokens", "words"),
    [(100.0, "is less than a sequence of 4096"), (1e18, "is more than 100,000,000 sequences of 4096")],
)
def test_absurd_targets_are_refused(tokens: float, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        target(tokens)


def test_a_tolerance_is_in_percent() -> None:
    assert parse_tolerance("2.5%", "--batch-tolerance") == pytest.approx(0.025)
    for text, words in (("3", "has no unit"), ("60%", "is more than 50%"), ("-1%", "is negative")):
        with pytest.raises(BadInput, match=words):
            parse_tolerance(text, "--batch-tolerance")
