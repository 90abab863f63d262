"""One order of a step that all devices keep."""

import pytest

from tests.runtime.small import build_small
from trainwright.plan.zoo import build_zoo
from trainwright.program.lower import lower
from trainwright.program.sequence import sequence
from trainwright.runtime.machine import build_setting


@pytest.mark.parametrize("zero", [2, 3])
def test_a_reduction_over_routes_waits_for_the_scatters_of_all_of_them(zero: int) -> None:
    # Two pipelines: gradients are scattered over 0, 1 and over 2, 3, then summed over 0, 2 and over 1, 3.
    graph = build_small("middle")
    program = lower(
        build_setting(graph, 4, 8, "bf16"), build_zoo("chimera", graph, 4, batch=8, pp=2, zero=zero)
    )
    assert len(program.routes) == 2
    steps = [program.routes[turn.route].steps[turn.step] for turn in sequence(program)]
    last = {weight: at for at, step in enumerate(steps) if step.phase == "W" for weight in step.state}
    summed = [(weight, at) for at, step in enumerate(steps) if step.phase == "S" for weight in step.state]
    assert {weight for weight, _ in summed} == set(last)
    assert all(last[weight] < at for weight, at in summed)
