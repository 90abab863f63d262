"""QSGD: numbers rounded at random to levels of the norm of their bucket (Alistarh et al. 2017)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwright.algorithm.compressor.bits import pack_bits, packed_size, unpack_bits
from trainwright.algorithm.compressor.protocol import Draw
from trainwright.algorithm.message import FLOAT_BYTES

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Qsgd:
    """A level up to s and a sign each, a norm for each bucket of b: omega <= min(b/s^2, sqrt(b)/s)."""

    levels: int = 7
    bucket: int = 512
    unbiased: bool = True

    @property
    def bits(self) -> int:
        """Of each number."""
        return (2 * self.levels).bit_length()

    def packed_bytes(self, count: int, workers: int) -> int:
        """Codes, and norms."""
        return packed_size(count, self.bits) + FLOAT_BYTES * -(-count // self.bucket)

    def omega(self, count: int, workers: int) -> float:
        """An upper bound."""
        size = min(self.bucket, count)
        return float(min(size / self.levels**2, size**0.5 / self.levels))

    def pack(self, values: "torch.Tensor", draw: Draw) -> "torch.Tensor":
        """The bytes of the norms, then the codes."""
        import torch

        count = len(values)
        padded = torch.cat([values, values.new_zeros(-count % self.bucket)]).view(-1, self.bucket)
        power = torch.frexp(padded.abs().amax(1)).exponent.clamp(-120, 120)
        ones = torch.ones(len(padded))
        near_one = padded * torch.ldexp(ones, -power)[:, None]  # or squares of small and large ones are lost
        norm = near_one.norm(dim=1)
        norms = norm * torch.ldexp(ones, power)
        shares = (near_one.abs() / norm.clamp(min=1e-38)[:, None]).flatten()[:count] * self.levels
        level = (shares + torch.rand(count, generator=draw.generator())).floor().clamp(max=self.levels)
        code = self.levels + torch.sign(values) * level
        return torch.cat([norms.view(torch.uint8), pack_bits(code.to(torch.uint8), self.bits)])

    def unpack(self, packed: "torch.Tensor", count: int, draw: Draw) -> "torch.Tensor":
        """Levels times norms."""
        import torch

        buckets = -(-count // self.bucket)
        norms = packed[: FLOAT_BYTES * buckets].clone().view(torch.float32)
        code = unpack_bits(packed[FLOAT_BYTES * buckets :], count, self.bits).float()
        return (code - self.levels) / self.levels * norms[:, None].expand(-1, self.bucket).reshape(-1)[:count]
