"""Compressors do what their analysis takes for granted."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from trainwright.algorithm.compressor.protocol import Compressor, Draw  # noqa: E402
from trainwright.algorithm.compressor.registry import COMPRESSORS, build_compressor  # noqa: E402
from trainwright.errors import BadInput  # noqa: E402

COUNT, TRIALS = 24, 2000


def read(compressor: Compressor, values: torch.Tensor, step: int, rank: int = 0) -> torch.Tensor:
    workers = 4
    draw = Draw(seed=1, step=step, rank=rank, workers=workers)
    packed = compressor.pack(values, draw)
    assert packed.numel() * packed.element_size() == compressor.packed_bytes(len(values), workers)
    return compressor.unpack(packed, len(values), draw)


@pytest.fixture
def vector() -> torch.Tensor:
    return torch.randn(COUNT, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("name", ["rand-k", "perm-k", "natural", "qsgd"])
def test_unbiased_ones_are_right_on_average_and_vary_as_stated(name: str, vector: torch.Tensor) -> None:
    compressor = build_compressor(name, 0.25, 3)
    found = torch.stack([read(compressor, vector, step) for step in range(TRIALS)])
    error = (found.mean(0) - vector).norm() / found.std(0).norm()
    assert error < 4 / TRIALS**0.5  # the mean of all trials is off by 1/sqrt(trials) of the spread
    variance = float((found - vector).square().sum(1).mean() / vector.square().sum())
    omega = compressor.omega(COUNT, 4)
    if name in ("rand-k", "perm-k"):  # 24/6 - 1 = 3; 4 - 1 = 3: equalities
        assert omega == 3.0
        assert variance == pytest.approx(3.0, rel=0.1)
    else:
        assert 0.0 < variance <= omega


def test_natural_compression_has_its_worst_case_at_four_thirds() -> None:
    found = torch.stack(
        [read(build_compressor("natural", 1.0), torch.full((64,), 4 / 3), i) for i in range(500)]
    )
    assert set(found.unique().tolist()) == {1.0, 2.0}
    # Rounded to 1 with probability 2/3: (1/3)^2 * 2/3 + (2/3)^2 / 3 = 2/9, which is 1/8 of 16/9.
    assert float((found - 4 / 3).square().mean() / (16 / 9)) == pytest.approx(1 / 8, rel=0.03)


def test_natural_compression_keeps_signs_zeros_and_powers_of_two() -> None:
    exact = torch.tensor([0.0, 1.0, -2.0, 0.125, -(2.0**-100), 2.0**100])
    assert torch.equal(read(build_compressor("natural", 1.0), exact, 0), exact)


def test_workers_of_perm_k_together_lose_nothing_of_a_common_vector(vector: torch.Tensor) -> None:
    perm = build_compressor("perm-k", 1.0)
    for count in (24, 23):  # which does not divide by 4
        mean = sum(read(perm, vector[:count], 7, rank) for rank in range(4)) / 4
        assert torch.allclose(mean, vector[:count])


@pytest.mark.parametrize("count", [3, 7])  # of 4 workers, one has nothing, or less than the others
def test_each_worker_of_perm_k_is_right_on_average_where_sizes_do_not_divide(count: int) -> None:
    perm, ones = build_compressor("perm-k", 1.0), torch.ones(count)
    for rank in range(4):
        found = torch.stack([read(perm, ones, step, rank) for step in range(300)])
        wide = 5 * float(found.std()) / 300**0.5  # a worker that never had a number would be off by 1
        assert found.mean(0).numpy() == pytest.approx(np.ones(count), abs=wide)


@pytest.mark.parametrize("name", COMPRESSORS)
def test_what_is_no_number_is_not_hidden_and_nothing_stays_nothing(name: str) -> None:
    compressor = build_compressor(name, 1.0)
    for broken in (float("nan"), float("inf"), -float("inf")):
        given = torch.tensor([1.0, broken, -2.0, 3.0])
        found = torch.stack([read(compressor, given, step, rank) for step in range(8) for rank in range(4)])
        assert not found.isfinite().all()
    assert torch.equal(read(compressor, torch.zeros(9), 0), torch.zeros(9))


@pytest.mark.parametrize("size", [1e-30, 1e-20, 1e20, 1e30])
@pytest.mark.parametrize("name", ["rand-k", "perm-k", "natural", "qsgd"])
def test_unbiased_ones_are_so_for_very_small_and_very_large_numbers(name: str, size: float) -> None:
    compressor, given = build_compressor(name, 0.5), torch.tensor([1.0, -0.7, 0.3, 0.1] * 2)
    found = torch.stack([read(compressor, size * given, step) for step in range(800)]) / size
    wide = 5 * found.std(0).numpy() / 800**0.5 + 1e-6
    assert (np.abs(found.mean(0).numpy() - given.numpy()) <= wide).all()


def test_the_error_of_perm_k_is_the_spread_of_the_workers_vectors() -> None:
    vectors = torch.randn(4, COUNT, generator=torch.Generator().manual_seed(2))
    perm, mean = build_compressor("perm-k", 1.0), vectors.mean(0)
    errors = [
        (sum(read(perm, vectors[rank], step, rank) for rank in range(4)) / 4 - mean).square().sum()
        for step in range(TRIALS)
    ]
    spread = float((vectors - mean).square().sum(1).mean())
    wide = 4 * float(np.std(errors)) / TRIALS**0.5
    assert float(torch.stack(errors).mean()) == pytest.approx(spread, abs=wide)


def test_top_k_contracts_by_at_least_its_share(vector: torch.Tensor) -> None:
    found = read(build_compressor("top-k", 0.25), vector, 0)
    assert int((found != 0).sum()) == 6
    assert float((found - vector).square().sum() / vector.square().sum()) <= 1 - 0.25
    flat = torch.ones(COUNT)  # the worst case: 18 of 24 are lost
    assert float((read(build_compressor("top-k", 0.25), flat, 0) - flat).square().sum()) == 18.0


def test_a_share_of_nothing_is_refused() -> None:
    assert set(COMPRESSORS) == {"rand-k", "perm-k", "top-k", "natural", "qsgd"}
    with pytest.raises(BadInput, match="share between 0 and 1"):
        build_compressor("rand-k", 0.0)
    with pytest.raises(BadInput, match="no such name"):
        build_compressor("randk", 0.5)
