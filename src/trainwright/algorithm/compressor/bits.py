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

    if 8 % bits:
        rows = np.unpackbits(numbers.numpy()[:, None], axis=1)[:, 8 - bits :]
        return torch.from_numpy(np.packbits(rows))
    columns = np.zeros((packed_size(len(numbers), bits), 8 // bits), np.uint8)  # one number beside another
    columns.reshape(-1)[: len(numbers)] = numbers.numpy() & (2**bits - 1)
    found = np.zeros(len(columns), np.uint8)
    for place, shift in enumerate(_shifts(bits)):
        found |= columns[:, place] << shift
    return torch.from_numpy(found)


def unpack_bits(packed: "torch.Tensor", count: int, bits: int) -> "torch.Tensor":
    """The numbers that were packed."""
    import torch

    if 8 % bits:
        flat = np.unpackbits(packed.numpy(), count=count * bits).reshape(count, bits)
        rows = np.concatenate([np.zeros((count, 8 - bits), np.uint8), flat], axis=1)
        return torch.from_numpy(np.packbits(rows, axis=1)[:, 0])
    columns = np.empty((len(packed), 8 // bits), np.uint8)
    for place, shift in enumerate(_shifts(bits)):
        columns[:, place] = packed.numpy() >> shift & (2**bits - 1)
    return torch.from_numpy(columns.reshape(-1)[:count])


def _shifts(bits: int) -> range:
    """How far each of the numbers that share a byte is moved: the first stands highest."""
    return range(8 - bits, -1, -bits)
