"""The checker on plans of real size: nothing to say, with work in proportion to the program."""

import pytest

from tests.builders import free_stack, gpt, perfect, round_cluster
from tests.counted_calls import count_calls
from trainwright.plan.expand import expand
from trainwright.plan.strategy import parse_strategy
from trainwright.program.check import check
from trainwright.program.lower import Program, lower
from trainwright.program.setting import Setting

STRATEGIES = ("dp4 tp8 sp", "tp32", "dp4 tp4 pp2 1f1b", "dp32 zero3")


def lowered(strategy: str, layers: int) -> tuple[int, Program]:
    """A GPT on 32 devices, and how many calls its lowering took."""
    graph = gpt(layers=layers, hidden=2048, heads=32, vocab=51200)
    setting = Setting(
        graph=graph, cluster=round_cluster(32), stack=free_stack(), efficiency=perfect(), seq=2048
    )
    plan = expand(parse_strategy(strategy), graph, 64)
    return count_calls(lambda: lower(setting, plan))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_gpt_of_24_layers_is_compiled_with_few_calls_for_each_step(strategy: str) -> None:
    lowering, program = lowered(strategy, 24)
    checking, _ = count_calls(lambda: check(program))
    steps = sum(len(route.steps) for route in program.routes)
    assert lowering < 350 * steps  # 160 to 210 were counted when this was written
    assert checking < 250 * steps  # 119 to 143


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_twice_the_layers_are_at_most_twice_the_work(strategy: str) -> None:
    lowered(strategy, 2)  # what is found once for all programs
    (lowering, program), (lowering_twice, twice) = lowered(strategy, 12), lowered(strategy, 24)
    checking, checking_twice = (count_calls(lambda each=each: check(each))[0] for each in (program, twice))
    assert lowering_twice <= 2.05 * lowering
    assert checking_twice <= 2.05 * checking
