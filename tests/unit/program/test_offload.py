"""Activations on their way to the host and back."""

import numpy as np
import pytest

from tests.builders import free_stack, gpt, round_cluster, round_job
from trainwright.errors import BadInput
from trainwright.plan.expand import expand
from trainwright.plan.strategy import parse_strategy
from trainwright.program.lower import Program, lower
from trainwright.program.offload import turns_at_once
from trainwright.program.setting import Setting
from trainwright.program.tabulate import tabulate
from trainwright.simulate.simulate import simulate

GRAPH = gpt(layers=8)


def lowered(text: str, batch: int = 8) -> Program:
    strategy = parse_strategy(text)
    job = round_job(GRAPH, round_cluster(strategy.devices), batch, stack=free_stack())
    setting = Setting(
        graph=GRAPH, cluster=job.cluster, stack=job.stack, efficiency=job.efficiency, seq=job.seq
    )
    return lower(setting, expand(strategy, GRAPH, batch))


def copied(program: Program, phase: str) -> list[str]:
    return [step.block for step in program.routes[0].steps if step.kind == "copy" and step.phase == phase]


def test_the_last_block_stays_if_its_backward_follows_at_once() -> None:
    layers = [f"layer.{number}" for number in range(8)]
    assert copied(lowered("dp1 offload-activations"), "F") == layers[:7]
    assert copied(lowered("pp2 1f1b offload-activations"), "F") == layers[:7]
    assert copied(lowered("pp2 gpipe offload-activations"), "F") == layers


@pytest.mark.parametrize(("schedule", "at_once"), [("gpipe", False), ("1f1b", True), ("zb", True)])
def test_only_the_last_stage_turns_at_once(schedule: str, at_once: bool) -> None:
    plan = lowered(f"pp2 {schedule}").plan
    assert (turns_at_once(plan, 0), turns_at_once(plan, 1)) == (False, at_once)


def test_a_stage_does_not_wait_for_the_copies_of_the_one_before() -> None:
    route = lowered("pp2 1f1b offload-activations").routes[0]
    copies = {number: step for number, step in enumerate(route.steps) if step.kind == "copy"}
    for step in route.steps:
        assert all(copies[other].stage == step.stage for other in step.after if other in copies)


def test_copies_out_and_back_run_beside_each_other() -> None:
    # In 1F1B a stage sends one microbatch's activations and brings another's back.
    timeline = simulate(tabulate(lowered("pp4 1f1b offload-activations", 16)))
    table = timeline.table
    labels = np.array(table.labels)[table.label]
    place = table.unit_place[table.lane_unit[table.lane]]
    spans = {
        way: [
            (timeline.start_s[n], timeline.end_s[n])
            for n in np.flatnonzero(np.char.find(labels, f"{way} host copy") >= 0)
            if place[n] == 0
        ]
        for way in ("to", "from")
    }
    assert any(a < d and c < b for a, b in spans["to"] for c, d in spans["from"])


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ("dp1 offload-activations3", [0, 1, 2]),
        ("dp1 offload-activations7", [0, 1, 2, 3, 4, 5, 6]),
        ("dp1 offload-activations8", [0, 1, 2, 3, 4, 5, 6]),  # the last one stays
        ("pp2 1f1b offload-activations2", [0, 1, 4, 5]),
        ("pp2 gpipe offload-activations4", [0, 1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_the_first_layers_of_each_stage_are_copied(text: str, layers: list[int]) -> None:
    program = lowered(text)
    assert copied(program, "F") == [f"layer.{number}" for number in layers]
    assert copied(program, "I") == copied(program, "F")[::-1]


def test_a_stage_offloads_no_more_layers_than_it_has() -> None:
    with pytest.raises(BadInput, match="offload_layers 5: a stage has 4 layers; use fewer"):
        lowered("pp2 1f1b offload-activations5")
