"""Random legal plans, sensible or not, train as one device does: on up to eight real processes."""

from collections.abc import Callable

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.laws.plans import TINY, Case, cases, graphs, tiny
from tests.runtime.equality import compare
from tests.runtime.pool import Pool
from trainwright.errors import BadInput
from trainwright.program.lower import lower

# Over five steps, the small ones.
_DRAWN = st.one_of(cases(graphs()), cases(st.sampled_from(TINY).map(tiny)))


@settings(
    max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)
@given(case=_DRAWN)
def test_a_random_plan_trains_as_one_device_does(pool: Callable[[int], Pool], case: Case) -> None:
    try:
        lower(case.setting, case.plan)
    except BadInput as error:
        assume("copies do not divide" not in error.rule)
        raise
    for rank, each in enumerate(pool(8).run(compare, case.setting.graph, case.plan, 4)):
        assert max(each.loss, each.gradient, each.norm) < 1e-5, f"process {rank}: {each}"
