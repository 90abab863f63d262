"""Our algorithms beside PyTorch's own on real processes: the same weights."""

import inspect
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.runtime import algorithms as tried
from tests.runtime import torch_hooks
from tests.runtime.pool import Pool

DOCUMENT = Path(__file__).parents[2] / "docs" / "algorithms.md"


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize(
    ("rank", "precision", "tolerance"),
    [
        (1, "float32", 1e-5),
        (3, "float32", 1e-5),
        # The three rows of the last layer's gradient add up to 0. With rank 2 only rounding is not sent,
        # which grows along the direction that no loss sees: to 5e-5 with their floats, 3e-6 with ours.
        (2, "float64", 1e-9),
    ],
)
def test_power_sgd_is_the_hook_of_torch(
    workers: int, rank: int, precision: str, tolerance: float, pool: Callable[[int], Pool]
) -> None:
    # Both make P and Q orthonormal, by other methods: bases may differ, what they span and P Q' do not.
    theirs = pool(workers).run(torch_hooks.run, "power-sgd", workers, precision, rank)
    ours = pool(workers).run(torch_hooks.run_ours, f"power-sgd rank={rank}", workers, precision)
    for name, values in ours[0].items():
        assert values == pytest.approx(theirs[0][name], abs=tolerance)


def test_local_sgd_after_exact_steps_is_the_hook_of_torch(pool: Callable[[int], Pool]) -> None:
    # Steps 0 to 3 are exact; both meet after steps 6 and 9, ours once more after the last, 10.
    theirs = pool(4).run(torch_hooks.run, "post-local-sgd", 4, "float32", 3, 4)
    ours = pool(4).run(tried.run, "local-sgd every=3 exact=4", "mlp", "sgd")
    for name, values in ours[0]["values"].items():
        assert values == pytest.approx(np.mean([each[name] for each in theirs], axis=0), abs=1e-5)
    assert any((theirs[0][name] != theirs[1][name]).any() for name in theirs[0])  # they do work apart


def test_diloco_steps_as_the_optimizer_of_torch(pool: Callable[[int], Pool]) -> None:
    theirs = pool(4).run(torch_hooks.run, "diloco", 4, "float32", 4)
    ours = pool(4).run(tried.run, "diloco every=4", "mlp", "adamw")
    for name, values in ours[0]["values"].items():
        assert values == pytest.approx(theirs[0][name], abs=1e-5)


@pytest.mark.parametrize("shown", [torch_hooks.power_sgd, torch_hooks.post_local_sgd, torch_hooks.outer_step])
def test_the_document_shows_the_code_that_is_tried(shown: Callable[..., object]) -> None:
    assert inspect.getsource(shown) in DOCUMENT.read_text(encoding="utf-8")
