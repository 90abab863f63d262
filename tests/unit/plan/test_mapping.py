"""Orders of parallel axes on the network."""

import numpy as np
import pytest

from tests.builders import gpt
from trainwright.errors import BadInput
from trainwright.plan.expand import expand
from trainwright.plan.mapping import ORDERS, axis_strides, positions
from trainwright.plan.strategy import parse_strategy, stack_strategies
from trainwright.plan.text import parse_plan, render_plan


def test_the_usual_order_is_not_printed() -> None:
    text = "dp8 tp4 pp2 mb1 zero1 1f1b bf16"
    assert str(parse_strategy(text)) == text
    assert str(parse_strategy(text + " order=tp-dp-pp")) == text
    assert str(parse_strategy(text + " order=cp-tp-dp-pp")) == text  # cp has one rank: anywhere is the same


def test_another_order_is_printed_and_parsed() -> None:
    strategy = parse_strategy("dp8 tp4 pp2 mb1 zero1 1f1b order=tp-pp-dp")
    assert str(strategy) == "dp8 tp4 pp2 mb1 zero1 1f1b bf16 order=tp-pp-dp"
    assert parse_strategy(str(strategy)) == strategy
    assert stack_strategies([strategy])[0] == strategy


def test_an_order_names_every_axis_that_has_ranks() -> None:
    with pytest.raises(BadInput, match="does not name each of tp, dp, pp once"):
        parse_strategy("dp8 tp4 pp2 mb1 order=tp-pp")
    with pytest.raises(BadInput, match="does not name each"):
        parse_strategy("dp8 tp4 mb1 order=tp-ep-dp")


def test_strides_multiply_from_the_inside() -> None:
    sizes = {"tp": np.full(2, 4.0), "cp": np.ones(2), "dp": np.full(2, 8.0), "pp": np.full(2, 2.0)}
    order = np.array([0, ORDERS.index("cp-tp-pp-dp")])
    strides = {axis: found.tolist() for axis, found in axis_strides(sizes, order).items()}
    assert strides["tp"] == [1, 1]
    assert strides["dp"] == [4, 8]
    assert strides["pp"] == [32, 4]


def test_devices_stand_where_the_mapping_puts_them() -> None:
    # numbered tp innermost, then dp, then pp; standing tp, pp, dp: device 2 (dp 1) is 4 places out
    found = positions((("cp", 1), ("tp", 2), ("pp", 2), ("dp", 3)))
    assert found.tolist() == [0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11]


def test_a_plan_says_its_mapping() -> None:
    plan = expand(parse_strategy("dp2 tp2 pp2 mb1 order=tp-pp-dp"), gpt(), 8)
    assert "mapping cp1 tp2 pp2 dp2\n" in render_plan(plan)
    assert parse_plan(render_plan(plan)) == plan
    with pytest.raises(BadInput, match="is not of 8 devices"):
        parse_plan("devices 8\nmapping tp2 pp2\n")
    with pytest.raises(BadInput, match="is not a list of axes"):
        parse_plan("devices 8\nmapping 2 4\n")
