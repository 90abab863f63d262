"""Rules that gradients under a plan rest on, each with a module that is wrong without it.

The modules are the smallest that break: whole architectures are compared in `test_architectures.py`.
"""

from collections.abc import Callable

import pytest

pytest.importorskip("torch", reason="needs torch")

import torch

from tests.runtime.loss_training import compare_case, traced_case
from tests.runtime.pool import Pool
from trainwright.model.flow import wire
from trainwright.runtime.tracing.traced import Traced


def check_equal(pool: Pool, name: str, text: str) -> None:
    """Losses, the gradient norm and every gradient over three steps are those of one process."""
    for rank, each in enumerate(pool.run(compare_case, name, text)):
        assert each.clipped
        assert max(each.loss, each.norm) < 1e-5, f"process {rank}: {each}"
        assert each.gradient < 1e-4, f"process {rank}: {each}"


def dtypes_between_layers(traced: Traced) -> set[torch.dtype]:
    """The dtypes of values that an operator of the second layer reads from blocks before it."""
    listed = wire(traced.graph)
    made = {
        value: dtype
        for each in listed
        if each.block != "layer.1"
        for value, dtype in zip(each.outputs, getattr(traced.kernels[each.name], "dtypes", ()), strict=False)
    }
    return {
        made[value] for each in listed if each.block == "layer.1" for value in each.inputs if value in made
    }


@pytest.mark.parametrize("text", ["dp2 mb2", "tp2 mb4", "pp2 mb2 1f1b", "dp2 zero3 mb2"])
def test_gradients_flow_through_complex_values(pool: Callable[[int], Pool], text: str) -> None:
    check_equal(pool(2), "complex_rotary", text)


@pytest.mark.parametrize(
    ("name", "dtypes"),
    [
        ("complex_stream", {torch.complex64}),
        ("double_stream", {torch.float64}),
        ("double_signs", {torch.float32, torch.float64}),
        ("shared_indices", {torch.float32, torch.int64, torch.bool}),
    ],
)
def test_messages_between_stages_have_the_dtype_of_their_value(
    pool: Callable[[int], Pool], name: str, dtypes: set[torch.dtype]
) -> None:
    assert dtypes_between_layers(traced_case(name)[1]) == dtypes
    check_equal(pool(2), name, "pp2 mb2 1f1b")


@pytest.mark.parametrize("name", ["complex_stream", "double_stream"])
def test_values_keep_their_dtype_when_they_are_recomputed(pool: Callable[[int], Pool], name: str) -> None:
    check_equal(pool(2), name, "pp2 mb2 1f1b full")


@pytest.mark.parametrize("text", ["pp2 mb2 1f1b", "dp2 pp2 zero1 mb2 1f1b", "tp2 pp2 mb2 1f1b"])
def test_a_tied_weight_counts_once_in_the_gradient_norm(pool: Callable[[int], Pool], text: str) -> None:
    listed = wire(traced_case("transformed_head")[1].graph)
    places = [
        tensor.dims for each in listed for tensor in each.op.weights if tensor.name == "embedding.weight"
    ]
    assert places == [("vocab", "hidden"), ("vocab", "hidden_other")]  # one weight, two names of a dim
    check_equal(pool(2 if text.startswith("pp2") else 4), "transformed_head", text)
