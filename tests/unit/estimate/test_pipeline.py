"""The longest path through a pipeline, against schedules played by hand."""

import numpy as np
import pytest

from tests.builders import floats
from trainwright.estimate.pipeline import Pipeline, Stage
from trainwright.estimate.sends import Sends
from trainwright.plan.strategy import Strategy, stack_strategies


def stage(forward_s: float, inputs_s: float, weights_s: float) -> Stage:
    forward, inputs, none = floats(forward_s), floats(inputs_s), floats(0.0)
    return Stage(
        layers=floats(1), forward_s=forward, inputs_s=inputs, weights_s=floats(weights_s),
        passing_forward_s=forward, passing_inputs_s=inputs, send_s=none, away_s=(none, none),
    )  # fmt: skip


def zero_bubble_s(microbatches: float, end: Stage, middle: Stage) -> float:
    """The time of a step on four rows, those at the ends alike."""
    none = floats(0.0)
    nowhere = Sends(
        latency_s=none, s_per_byte=none, more_latency_s=none, more_s_per_byte=none,
        leaves=np.array([False]), borders=none, row=none,
    )  # fmt: skip
    whole = [2 * getattr(end, name) + 2 * getattr(middle, name) for name in ("forward_s", "inputs_s")]
    pipeline = Pipeline(
        strategies=stack_strategies([Strategy(pp=4, schedule="zb")]), first=end, middle=middle, last=end,
        row=floats(2), far_s=none, sends=nowhere, passing_forward_s=whole[0], passing_inputs_s=whole[1],
        chunks_s=none, over_s=none,
    )  # fmt: skip
    return float(pipeline.step_s(floats(microbatches))[0])


def test_of_two_microbatches_the_second_row_ends_last_with_its_weight_gradients() -> None:
    # Row 1: forwards 0.5 to 2.5; the first gradient is back from rows 2 and 3 at 4.5, the second at 5.5, so
    # that gradients of inputs end at 6.5; then weight gradients of both, 3 each. Row 2 ends at 5.5 + 6.
    assert zero_bubble_s(2, stage(0.5, 0.5, 0.5), stage(1, 1, 3)) == pytest.approx(12.5)
