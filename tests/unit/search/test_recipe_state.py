"""A recipe's own optimizer state, weights and logits, as the stack that predicts it has them."""

import pytest

from tests.unit.search.recipe_rows import recipe
from trainwright.cost.constants import Stack
from trainwright.cost.load import load_constants
from trainwright.cost.state import StateWidths, state_widths
from trainwright.search.published_recipe import PRECISION_OF
from trainwright.search.recipe_state import optimizer_name, recipe_stack, render_state

MEGATRON = load_constants().stack("megatron-core")


def own(family: str = "hopper", **changes: object) -> Stack:
    return recipe_stack(recipe(optimizer="adam", **changes), MEGATRON, family)


def widths(family: str = "hopper", **changes: object) -> StateWidths:
    precision = PRECISION_OF[str(changes.get("precision", "bf16"))]
    return state_widths(own(family, **changes), family, precision)


def test_gradients_have_the_dtype_that_a_recipe_states() -> None:
    assert widths(grad_dtype="bf16").gradient == 2.0
    assert widths(grad_dtype="fp32").gradient == 4.0


@pytest.mark.parametrize(
    ("changes", "name", "optimizer_bytes"),
    [
        ({}, "adamw", 12.0),  # 4 of the master weight, 4 of each moment
        ({"exp_avg_dtype": "bf16"}, "adamw", 10.0),  # the second moment stays fp32
        ({"precision_aware": True}, "precision-aware", 10.0),  # 2 of 16 missing bits, 8
        ({"precision_aware": True, "exp_avg_dtype": "bf16"}, "precision-aware-bf16", 6.0),
    ],
)
def test_moments_have_the_dtypes_that_a_recipe_states(
    changes: dict[str, object], name: str, optimizer_bytes: float
) -> None:
    assert optimizer_name(recipe(optimizer="adam", **changes)) == name
    assert widths("hopper", **changes).optimizer == optimizer_bytes


@pytest.mark.parametrize(
    ("family", "precision", "other", "stored"),
    [
        ("hopper", "fp8-tensorwise", {}, 2.0),  # the weight and its transpose
        ("blackwell", "fp8-tensorwise", {}, 1.0),  # one layout serves both products
        ("blackwell", "mxfp8", {}, 2.0625),
        ("blackwell", "mxfp8", {"fp8_param_gather": "0"}, 4.0625),  # beside a weight in bf16
        ("hopper", "fp8-blockwise", {}, 4.0),
        ("blackwell", "nvfp4", {}, 1.125),
    ],
)
def test_weights_are_kept_as_the_scaling_needs(
    family: str, precision: str, other: dict[str, str], stored: float
) -> None:
    assert widths(family, precision=precision, other=other).stored == stored


def test_logits_depend_on_the_cross_entropy() -> None:
    assert own().live_logits_bytes == MEGATRON.live_logits_bytes
    assert own(other={"cross_entropy": "native"}).live_logits_bytes == MEGATRON.live_logits_bytes
    assert own(other={"cross_entropy": "te"}).live_logits_bytes == 4.0
    assert own(other={"vocab_tiling": "4"}).live_logits_bytes == MEGATRON.live_logits_bytes / 4


def test_the_state_is_said_in_words() -> None:
    found = recipe(optimizer="adam", grad_dtype="bf16", other={"cross_entropy": "te"})
    assert render_state(found) == "adamw, gradients bf16, Transformer Engine's cross entropy"
