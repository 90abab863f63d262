"""Matrix products cost whole tiles in waves over the compute units, or their traffic."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from tests.builders import floats, free_stack, perfect, round_device
from trainwright.cost.gemm import MatrixUnit, gemm_time_s, gemm_traffic_bytes
from trainwright.cost.operators import Machine

UNIT = MatrixUnit(
    peak_flops_per_s=100e12, memory_bytes_per_s=1e15, units=100, efficiency=1.0, depth=0.0, tile_penalty=0.0,
    overhead_s=0.0,
)  # fmt: skip


def time_s(unit: MatrixUnit, m: float, n: float, k: float, groups: float = 1.0) -> float:
    return float(gemm_time_s(unit, floats(m), floats(n), floats(k), floats(groups), 2.0)[0])


def test_one_full_wave_runs_at_peak() -> None:
    # 10 x 10 tiles of 256 x 128 fill 100 units: 2·2560·1280·1000 FLOPs / 100 TFLOP/s = 65.536 us
    assert time_s(UNIT, 2560, 1280, 1000) == pytest.approx(65.536e-6)


def test_two_full_waves_take_twice_as_long() -> None:
    assert time_s(UNIT, 5120, 1280, 1000) == pytest.approx(2 * 65.536e-6)


def test_a_row_beyond_a_full_wave_costs_more_than_its_work() -> None:
    assert time_s(UNIT, 2561, 1280, 1000) > 1.01 * time_s(UNIT, 2560, 1280, 1000)


def test_a_tiny_product_still_occupies_a_wave_of_the_smallest_tile() -> None:
    # 1 tile of 64 x 64 on 100 units takes as long as 100 of them: 2·64·64·100·1000 / 100 TFLOP/s = 8.192 us
    assert time_s(UNIT, 1, 1, 1000) == pytest.approx(8.192e-6)


def test_a_shallow_product_reaches_half_of_the_rate_at_the_depth_constant() -> None:
    shallow = replace(UNIT, depth=1000.0)
    assert time_s(shallow, 2560, 1280, 1000) == pytest.approx(2 * 65.536e-6)


def test_efficiency_divides_the_rate() -> None:
    assert time_s(replace(UNIT, efficiency=0.5), 2560, 1280, 1000) == pytest.approx(2 * 65.536e-6)


def test_a_product_with_a_vector_is_bound_by_reading_the_matrix() -> None:
    slow_memory = replace(UNIT, memory_bytes_per_s=1e12)
    # (8192 + 8192² + 8192) elements of 2 bytes at 1 TB/s = 134.25 us
    assert time_s(slow_memory, 1, 8192, 8192) == pytest.approx(134.25e-6, rel=1e-4)


def test_every_kernel_pays_its_overhead_once() -> None:
    assert time_s(replace(UNIT, overhead_s=5e-6), 2560, 1280, 1000) == pytest.approx(70.536e-6)


def test_groups_share_waves() -> None:
    # 100 groups of one 256 x 128 tile fill one wave, as one product of 100 tiles does
    assert time_s(UNIT, 256, 128, 1000, groups=100) == pytest.approx(65.536e-6)


def test_small_tiles_reach_less_where_they_are_penalised() -> None:
    penalised = replace(UNIT, tile_penalty=0.5)
    assert time_s(penalised, 2560, 1280, 1000) == pytest.approx(65.536e-6)  # the largest tile is not
    assert time_s(penalised, 64, 64, 1000) > time_s(UNIT, 64, 64, 1000)


def test_shapes_are_independent_of_their_neighbours() -> None:
    m, n, k = floats(64, 2560, 100), floats(64, 1280, 7), floats(1000, 1000, 3)
    together = gemm_time_s(UNIT, m, n, k, floats(1), 2.0)
    alone = [time_s(UNIT, *map(float, shape)) for shape in zip(m, n, k, strict=True)]
    assert np.array_equal(together, alone)


class TestBufferAwareTraffic:
    SHAPE = (floats(1000.0), floats(500.0), floats(200.0), floats(1.0))
    # 2 bytes each: U = 1000·200 = 400 kB, V = 200·500 = 200 kB, W = 1000·500 = 1 MB

    def test_each_tensor_moves_once_when_the_smaller_operand_fits(self) -> None:
        assert gemm_traffic_bytes(self.SHAPE, 2.0, 2.0, 200e3)[0] == 1.6e6
        assert gemm_traffic_bytes(self.SHAPE, 2.0, 2.0)[0] == 1.6e6

    def test_an_operand_is_read_again_for_each_piece_of_the_other(self) -> None:
        # 150 kB: V in two pieces, U read twice: 1 MB + 200 kB + 800 kB; U in three would be 2.0 MB too
        assert gemm_traffic_bytes(self.SHAPE, 2.0, 2.0, 150e3)[0] == 2.0e6
        # 100 kB: V in two: 2.0 MB; U in four pieces, V read four times: 2.2 MB
        assert gemm_traffic_bytes(self.SHAPE, 2.0, 2.0, 100e3)[0] == 2.0e6

    def test_a_bigger_buffer_never_moves_more(self) -> None:
        sizes = np.geomspace(1e3, 1e7, 200)
        moved = [float(gemm_traffic_bytes(self.SHAPE, 2.0, 4.0, size)[0]) for size in sizes]
        assert all(later <= before for before, later in pairwise(moved))

    def test_only_the_roofline_source_counts_it(self) -> None:
        machine = Machine(
            device=round_device(), efficiency=perfect(), stack=free_stack(), precision="bf16"
        )  # fmt: skip
        assert machine.buffer_bytes == np.inf
        assert replace(machine, efficiency=perfect(buffered=True)).buffer_bytes == 40e6
