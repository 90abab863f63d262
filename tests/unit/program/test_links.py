"""Gathers of weights and scatters of gradients share links, within an action and between actions."""

import numpy as np
import pytest

from tests.builders import free_stack, gpt, round_cluster, round_job
from trainwright.plan.expand import expand
from trainwright.plan.strategy import parse_strategy
from trainwright.program.entries import LANES
from trainwright.program.links import Between, Ends
from trainwright.program.lower import lower
from trainwright.program.setting import Setting
from trainwright.program.table import Table
from trainwright.program.tabulate import tabulate
from trainwright.simulate.simulate import simulate

GRAPH = gpt(layers=8)


def build(text: str, batch: int, overlap: float) -> Table:
    strategy = parse_strategy(text)
    job = round_job(
        GRAPH, round_cluster(strategy.devices), batch, stack=free_stack(dp_overlap=overlap, tp_overlap=0.5)
    )
    setting = Setting(
        graph=GRAPH, cluster=job.cluster, stack=job.stack, efficiency=job.efficiency, seq=job.seq
    )
    return tabulate(lower(setting, expand(strategy, GRAPH, batch)))


@pytest.mark.parametrize("text", ["dp8 zero3", "dp4 pp2 zero3 1f1b", "dp4 pp2 vpp4 zero3 interleaved"])
def test_a_step_is_no_shorter_than_what_its_links_carry(text: str) -> None:
    table = build(text, 32, 0.5)
    is_data = np.array(table.causes)[table.label] == "dp"
    place = table.lane // len(LANES)
    # Half of each gather and scatter blocks, half hides; both are on the links.
    busy_s = [table.seconds[is_data & (place == each)].sum() for each in range(len(table.places))]
    assert simulate(table).step_s >= max(busy_s)


def test_the_next_action_gathers_once_the_last_gather_has_blocked() -> None:
    between = Between()
    between.follow(Ends(first_gathers=((0, 1),), last_gathers=((2, 3),), last_scatters=((4, 5),)))
    between.follow(Ends(first_gathers=((6, 7),), last_gathers=((6, 7),)))
    # Task 6 hides and 7 blocks; 4 blocks and 5 hides.
    assert between.waits == [(6, 3), (4, 6), (5, 7)]
    between.follow(Ends(first_gathers=((8, 9),), last_gathers=((8, 9),)))
    assert between.waits[3:] == [(8, 7), (9, 5)]
