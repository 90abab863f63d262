"""The checker on plans of real size: nothing to say, and quickly said."""

import time

import pytest

from tests.builders import free_stack, gpt, perfect, round_cluster
from trainwright.plan.expand import expand
from trainwright.plan.strategy import parse_strategy
from trainwright.program.check import check
from trainwright.program.lower import lower
from trainwright.program.setting import Setting


@pytest.mark.parametrize("strategy", ["dp4 tp8 sp", "tp32", "dp4 tp4 pp2 1f1b", "dp32 zero3"])
def test_a_gpt_of_24_layers_is_compiled_for_32_devices_in_a_moment(strategy: str) -> None:
    graph = gpt(layers=24, hidden=2048, heads=32, vocab=51200)
    setting = Setting(
        graph=graph, cluster=round_cluster(32), stack=free_stack(), efficiency=perfect(), seq=2048
    )
    begin = time.perf_counter()
    check(lower(setting, expand(parse_strategy(strategy), graph, 64)))
    assert time.perf_counter() - begin < 2.0  # 0.15 to 0.25 s on an idle core
