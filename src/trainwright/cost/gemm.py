"""The time of a matrix product by shape: tiles, waves, depth and traffic."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Output tiles that matrix libraries choose from (rows, columns). A smaller tile re-reads its operands more
# often, so it reaches less of the peak: rows·columns/(rows+columns) is its arithmetic intensity.
TILES = ((256, 128), (128, 128), (128, 64), (64, 64))


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixUnit:
    """What limits matrix products on one device: rates, and four constants fitted to measured kernels."""

    peak_flops_per_s: float
    memory_bytes_per_s: float  # achieved, not datasheet
    units: int
    efficiency: float  # of peak, large shapes
    depth: float  # contracted length at which half of the rate is reached
    tile_penalty: float  # share of the rate lost per relative loss of tile intensity
    overhead_s: float  # fill and drain of one kernel
    group_s: float = 0.0  # the same of one more product among several
    buffer_bytes: float = np.inf  # on chip; what does not fit there is read again


def gemm_time_s(
    unit: MatrixUnit,
    m: Array,
    n: Array,
    k: Array,
    groups: Array,
    element_bytes: float,
    result_bytes: float | None = None,
) -> Array:
    """Time of `groups` products (m×k)·(k×n) launched as one kernel.

    Tiles are dealt to compute units in waves; the best tile is chosen per shape. The last wave is charged
    by half of what it leaves idle, as libraries split the contraction to fill it.
    """
    best = np.full(np.broadcast(m, n, k, groups).shape, np.inf)
    full = _intensity(*TILES[0])
    for rows, columns in TILES:
        for a, b in ((rows, columns), (columns, rows)) if rows != columns else ((rows, columns),):
            tiles = np.ceil(m / a) * np.ceil(n / b) * groups
            waves = tiles / unit.units
            charged = 0.5 * (np.ceil(waves) + np.maximum(waves, 1.0))
            rate = 1.0 - unit.tile_penalty * (1.0 - _intensity(rows, columns) / full)
            work = charged * (2.0 * a * b * unit.units) * (k + unit.depth) / rate
            np.minimum(best, work, out=best)
    compute_s = best / (unit.peak_flops_per_s * unit.efficiency)
    written = element_bytes if result_bytes is None else result_bytes
    traffic = gemm_traffic_bytes((m, n, k, groups), element_bytes, written, unit.buffer_bytes)
    busy_s = np.maximum(compute_s, traffic / unit.memory_bytes_per_s)
    return np.asarray(busy_s + unit.overhead_s + unit.group_s * (groups - 1.0))


def gemm_traffic_bytes(
    shape: tuple[Array, Array, Array, Array],
    element_bytes: float,
    result_bytes: float,
    buffer_bytes: float = np.inf,
) -> Array:
    """Bytes between memory and chip of `groups` products (m×k)·(k×n): each operand once, the result once.

    With an on-chip buffer of S bytes, operands U and V and a result W move W + min(U + ⌈U/S⌉V, V + ⌈V/S⌉U):
    one operand stays in pieces of S, the other is read again for each (COMET, arXiv 2211.16648).
    """
    m, n, k, groups = shape
    left, right, result = m * k * element_bytes, k * n * element_bytes, m * n * result_bytes
    if np.ndim(buffer_bytes) == 0 and np.isinf(buffer_bytes):
        return groups * (left + right + result)
    again = np.minimum(
        left + np.ceil(left / buffer_bytes) * right, right + np.ceil(right / buffer_bytes) * left
    )
    return groups * (result + again)


def _intensity(rows: int, columns: int) -> float:
    return rows * columns / (rows + columns)
