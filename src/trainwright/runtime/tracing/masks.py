"""Dropout masks that depend on the seed and on the place in the whole tensor, not on how it is split."""

from collections.abc import Sequence

import torch

from trainwright.runtime.work import Span

# The finaliser of SplitMix64 (Steele, Lea and Flood 2014), as signed 64-bit integers that wrap around.
_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15
_FIRST = -4658895280553007687  # 0xBF58476D1CE4E5B9
_SECOND = -7723592293110705685  # 0x94D049BB133111EB
_BITS = 24  # of each number, as many as a float32 holds


def kept(
    seed: int, place: int, spans: Sequence[Span], sizes: Sequence[int], rate: float, device: torch.device
) -> torch.Tensor:
    """Which elements dropout keeps at `rate`: ones and zeros over a part of a tensor of the given sizes.

    `place` tells the dropouts of one operator apart.
    """
    number = torch.zeros((), dtype=torch.int64, device=device)
    for axis, ((low, high), size) in enumerate(zip(spans, sizes, strict=True)):
        shape = [-1 if each == axis else 1 for each in range(len(spans))]
        number = number * size + torch.arange(low, high, device=device).reshape(shape)
    limit = round(rate * (1 << _BITS))
    return (_mixed(number, _start(seed, place)) >> (64 - _BITS)) & ((1 << _BITS) - 1) >= limit


def _start(seed: int, place: int) -> int:
    """The number that the count begins at, as a signed 64-bit integer."""
    value = (seed * 0xD1342543DE82EF95 + place * 0x2545F4914F6CDD1D + 1) & ((1 << 64) - 1)
    return value - (1 << 64) if value >> 63 else value


def _mixed(number: torch.Tensor, start: int) -> torch.Tensor:
    value = (number + start) * _GOLDEN
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        value = (value ^ _shifted(value, shift)) * factor
    return value ^ _shifted(value, 31)


def _shifted(value: torch.Tensor, by: int) -> torch.Tensor:
    """A shift to the right that fills with zeros."""
    return (value >> by) & ((1 << (64 - by)) - 1)
