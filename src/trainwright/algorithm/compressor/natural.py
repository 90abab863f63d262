"""Natural compression: numbers rounded at random to powers of two (Horváth et al. 2022)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwright.algorithm.compressor.bits import pack_bits, packed_size, unpack_bits
from trainwright.algorithm.compressor.protocol import Draw

if TYPE_CHECKING:
    import torch

# A float's bits are its sign, 8 of the exponent, and these. What is sent is the exponent less 1, and 0 for 0.
_MANTISSA_BITS = 23


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
        """Exponents, then signs; a number is as likely to go up as it is above its power of two."""
        import torch

        bits = values.view(torch.int32)
        above = (bits & 2**_MANTISSA_BITS - 1) * 2.0**-_MANTISSA_BITS
        up = torch.rand(len(values), generator=draw.generator()) < above
        code = ((bits >> _MANTISSA_BITS & 255) - 1 + up.int()).clamp(min=0)
        return torch.cat([code.to(torch.uint8), pack_bits((bits < 0).to(torch.uint8), 1)])

    def unpack(self, packed: "torch.Tensor", count: int, draw: Draw) -> "torch.Tensor":
        """Powers of two."""
        import torch

        code, signs = packed[:count].int(), unpack_bits(packed[count:], count, 1)
        exponent = (code + 1).clamp(max=255) * (code > 0)  # 255: infinite
        return (exponent << _MANTISSA_BITS | signs.int() << 31).view(torch.float32)
