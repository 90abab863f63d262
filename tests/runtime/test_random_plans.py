"""Random legal plans, sensible or not, train as one device does: on real processes."""

from collections.abc import Callable

from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from tests.laws.plans import TINY, Case, cases, graphs, tiny
from tests.runtime.equality import compare
from tests.runtime.pool import Pool
from tests.runtime.test_equality import THOROUGH
from trainwright.errors import BadInput
from trainwright.program.lower import lower
from trainwright.program.sequence import sequence

_DRAWN = st.one_of(cases(graphs(), 4), cases(st.sampled_from(TINY).map(tiny), 4))


def _check(pool: Pool, case: Case) -> None:
    try:
        sequence(lower(case.setting, case.plan))
    except BadInput as error:
        # Stages of which each needs what the other makes have no order: such plans are refused.
        assume("copies do not divide" not in error.rule and "waits for what waits" not in error.rule)
        raise
    for rank, each in enumerate(pool.run(compare, case.setting.graph, case.plan, 4)):
        assert max(each.loss, each.gradient, each.norm) < 1e-5, f"process {rank}: {each}"


@settings(
    max_examples=200 if THOROUGH else 25, deadline=None, derandomize=True, database=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(case=_DRAWN)
def test_a_random_plan_trains_as_one_device_does(pool: Callable[[int], Pool], case: Case) -> None:
    _check(pool(4), case)


@settings(
    max_examples=25 if THOROUGH else 5, deadline=None, derandomize=True, database=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(case=cases(st.sampled_from(TINY).map(tiny), 8))
def test_a_random_plan_on_eight_processes_trains_as_one_device_does(
    pool: Callable[[int], Pool], case: Case
) -> None:
    _check(pool(8), case)
