"""Digits that need no file: glyphs of a small font, moved, turned, stretched, dimmed and blurred by noise."""

import math

import torch
import torch.nn.functional as F

from trainwright.algorithm.network import Batch
from trainwright.algorithm.teacher import Labelled

SIDE = 12  # pixels
_GLYPHS = (  # five columns by seven rows
    "01110 10001 10011 10101 11001 10001 01110", "00100 01100 00100 00100 00100 00100 01110",
    "01110 10001 00001 00010 00100 01000 11111", "11111 00010 00100 00010 00001 10001 01110",
    "00010 00110 01010 10010 11111 00010 00010", "11111 10000 11110 00001 00001 10001 01110",
    "00110 01000 10000 11110 10001 10001 01110", "11111 00001 00010 00100 01000 01000 01000",
    "01110 10001 10001 01110 10001 10001 01110", "01110 10001 10001 01111 00001 00010 01100",
)  # fmt: skip


def draw_digits(train: int, held: int, seed: int, noise: float) -> Labelled:
    """Pictures of digits, flat and of about unit size; `held` each to choose and to judge by."""
    source = torch.Generator().manual_seed(seed)
    count = train + 2 * held
    labels = torch.randint(10, (count,), generator=source)
    pictures = F.grid_sample(_glyphs()[labels], _places(count, source), align_corners=False)
    bright = 0.6 + 0.4 * torch.rand(count, 1, 1, 1, generator=source)
    pictures = bright * pictures + noise * torch.randn(pictures.shape, generator=source)
    x = (pictures.flatten(1) - 0.15) / 0.4
    middle = train + held
    return Labelled(
        train=Batch(x[:train], labels[:train]),
        validation=Batch(x[train:middle], labels[train:middle]),
        test=Batch(x[middle:], labels[middle:]),
    )


def _glyphs() -> torch.Tensor:
    """The ten glyphs, in the middle of a picture each."""
    found = torch.zeros(10, 1, SIDE, SIDE)
    for digit, rows in enumerate(_GLYPHS):
        for row, bits in enumerate(rows.split()):
            found[digit, 0, row + 2, 3:8] = torch.tensor([float(bit) for bit in bits])
    return 2.0 * F.avg_pool2d(found, 3, stride=1, padding=1)  # strokes of a pen


def _places(count: int, source: torch.Generator) -> torch.Tensor:
    """Where each pixel of each picture comes from: turned, stretched, leaning, moved."""
    turn, lean, across, up = ((2 * torch.rand(count, generator=source) - 1) for _ in range(4))
    wide, tall = (0.8 + 0.4 * torch.rand(count, generator=source) for _ in range(2))
    angle = turn * math.pi / 12
    rows = [
        torch.stack([angle.cos() * wide, angle.sin() + 0.2 * lean, 0.2 * across], 1),
        torch.stack([-angle.sin(), angle.cos() * tall, 0.15 * up], 1),
    ]
    return F.affine_grid(torch.stack(rows, 1), [count, 1, SIDE, SIDE], align_corners=False)
