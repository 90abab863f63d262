"""Natural compression: numbers rounded at random to powers of two (Horváth et al. 2022)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwright.algorithm.compressor.bits import pack_bits, packed_size, unpack_bits
from trainwright.algorithm.compressor.protocol import Draw

if TYPE_CHECKING:
    import torch

_BIAS = 126  # of the exponent that a byte holds; 0 stands for the number 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Natural:
    """A sign and an exponent, 9 bits: omega = 1/8. Numbers below 2^-125 become 0."""

    unbiased: bool = True

    def packed_bytes(self, count: int, workers: int) -> int:
        """A byte for each exponent, a bit for each sign."""
        return count + packed_size(count, 1)

    def omega(self, count: int, workers: int) -> float:
        """1/8: the worst number is 4/3 of a power of two."""
        return 0.125

    def pack(self, values: "torch.Tensor", draw: Draw) -> "torch.Tensor":
        """Exponents, then signs."""
        import torch

        mantissa, exponent = torch.frexp(values.abs())  # in [1/2, 1)
        up = torch.rand(len(values), generator=draw.generator()) < 2.0 * mantissa - 1.0
        code = (exponent - 1 + up.int() + _BIAS).clamp(0, 255) * (values != 0)
        return torch.cat([code.to(torch.uint8), pack_bits((values < 0).to(torch.uint8), 1)])

    def unpack(self, packed: "torch.Tensor", count: int, draw: Draw) -> "torch.Tensor":
        """Powers of two."""
        import torch

        code, signs = packed[:count].int(), unpack_bits(packed[count:], count, 1)
        size = torch.ldexp(torch.ones(count), code - _BIAS) * (code > 0)
        return torch.where(signs.bool(), -size, size)
