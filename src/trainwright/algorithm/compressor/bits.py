"""Small whole numbers as bits without gaps."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def packed_size(count: int, bits: int) -> int:
    """Bytes that so many numbers of so many bits take."""
    return -(-count * bits // 8)


def pack_bits(numbers: "torch.Tensor", bits: int) -> "torch.Tensor":
    """Bytes that hold the low bits of each number, one after another."""
    import torch

    rows = np.unpackbits(numbers.numpy()[:, None], axis=1)[:, 8 - bits :]
    return torch.from_numpy(np.packbits(rows))


def unpack_bits(packed: "torch.Tensor", count: int, bits: int) -> "torch.Tensor":
    """The numbers that were packed."""
    import torch

    flat = np.unpackbits(packed.numpy(), count=count * bits).reshape(count, bits)
    rows = np.concatenate([np.zeros((count, 8 - bits), np.uint8), flat], axis=1)
    return torch.from_numpy(np.packbits(rows, axis=1)[:, 0])
