"""Rounds of islands: the closed form and the simulation agree, and behave as they should."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.program.test_meetings import setting
from trainwright.algorithm.registry import parse_algorithm
from trainwright.estimate.rounds import round_s
from trainwright.estimate.step import estimate
from trainwright.estimate.types import Job
from trainwright.model.graph import parameters
from trainwright.plan.expand import expand
from trainwright.plan.islands import set_apart
from trainwright.plan.strategy import parse_strategy, stack_strategies
from trainwright.program.meetings import (
    Meeting,
    build_apartness,
    build_meetings,
    held_share,
    island_cluster,
    island_graph,
)
from trainwright.simulate.islands import simulate_apart
from trainwright.simulate.rounds import simulate_round
from trainwright.simulate.timeline import Timeline
from trainwright.simulate.whole import simulate_plan

TOLERANCE = 0.03


@cache
def step() -> Timeline:
    where = setting("h100:8")
    return simulate_plan(where, expand(parse_strategy("dp4 pp2 mb1 1f1b bf16"), where.graph, 8)).timeline


@st.composite
def rounds(draw: st.DrawFn) -> tuple[int, list[Meeting]]:
    """A count of steps, and meetings in them that take from nothing to far too long."""
    every = draw(st.integers(2, 40))
    count = draw(st.integers(1, min(every, 5)))
    delay = draw(st.integers(0, every - 1))
    afters = [(part + 1) * every // count for part in range(count)]
    link_s = draw(st.floats(0.0, 4.0)) * step().step_s
    apply_s = draw(st.floats(0.0, 0.2)) * step().step_s
    return every, [Meeting(after=a, delay=delay, messages=(), link_s=link_s, apply_s=apply_s) for a in afters]


@given(rounds())
def test_closed_form_and_events_agree_on_a_round(drawn: tuple[int, list[Meeting]]) -> None:
    every, meetings = drawn
    simulated = simulate_round(step(), every, meetings).round_s
    assert round_s(step().step_s, every, meetings) == pytest.approx(simulated, rel=TOLERANCE)


@given(rounds())
def test_a_round_is_no_shorter_than_its_steps_and_no_longer_than_all_in_turn(
    drawn: tuple[int, list[Meeting]],
) -> None:
    every, meetings = drawn
    simulated = simulate_round(step(), every, meetings).round_s
    steps_s = every * step().step_s
    told_s = sum(each.link_s + each.apply_s for each in meetings)
    assert steps_s * (1 - 1e-9) <= simulated <= (steps_s + told_s) * (1 + 1e-9)
    blocking = [replace(each, delay=0) for each in meetings]
    assert simulate_round(step(), every, blocking).round_s == pytest.approx(steps_s + told_s)


def test_the_timeline_of_a_round_shows_its_last_step_task_by_task_and_its_meeting() -> None:
    meeting = Meeting(after=10, delay=0, messages=(), link_s=1.0, apply_s=0.1)
    found = simulate_round(step(), 10, [meeting])
    table, own = found.timeline.table, step()
    labels = [table.labels[label] for label in table.label[len(own.table) :]]
    assert labels.count("9 steps") == labels.count("meeting after 10") == len(table.places)
    shift = 9 * own.step_s
    assert np.allclose(found.timeline.end_s[: len(own.table)], own.end_s + shift)
    assert found.round_s == pytest.approx(10 * own.step_s + 1.1)


CASES = [
    ("dp8 mb1 zero1 bf16", "diloco every=20", 2),
    ("dp4 tp2 mb1 bf16", "ist every=20 coverage=0.4", 5),
    ("dp4 pp2 mb1 zero1 1f1b bf16", "streaming-diloco every=40 delay=6", 2),
    ("dp8 mb2 zero3 bf16", "local-sgd every=8", 2),
    ("dp8 mb1 zero1 bf16", "compressed by=rand-k share=0.1 feedback=no", 2),
    ("dp4 pp2 mb1 zero1 1f1b bf16", "power-sgd rank=16", 4),
]


@pytest.mark.parametrize(("strategy", "algorithm", "islands"), CASES)
def test_closed_form_and_simulation_agree_on_whole_plans(strategy: str, algorithm: str, islands: int) -> None:
    where = setting(f"h100:8x{islands}@1Gbps")
    apart = build_apartness(where.graph, where.seq, parse_algorithm(algorithm), islands)
    graph, chosen = island_graph(where.graph, apart), parse_strategy(strategy)
    plan = set_apart(expand(chosen, graph, 32), apart.algorithm, islands)
    job = Job(
        graph=graph, cluster=island_cluster(where.cluster, islands), stack=where.stack,
        efficiency=where.efficiency, seq=where.seq, global_batch=32,
    )  # fmt: skip
    result = estimate(job, stack_strategies([chosen]))
    held = held_share(where.stack, "bf16", float(result.memory_bytes["weights"][0]), graph)
    closed = round_s(float(result.step_s[0]), apart.every, build_meetings(where, apart, held))
    found = simulate_apart(where, plan)
    assert closed == pytest.approx(found.round.round_s, rel=TOLERANCE)
    assert found.step.needs[0].category_bytes["optimizer"] > found.beside_bytes
    assert parameters(graph) <= parameters(where.graph)
