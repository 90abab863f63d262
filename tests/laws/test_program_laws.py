"""Whatever the plan: the lowered program computes what the model says, with the work that the plan says."""

from collections import Counter
from dataclasses import replace
from math import prod

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.laws.plans import TINY, Case, cases, graphs, setting_of, tiny
from trainwright.errors import BadInput
from trainwright.model.totals import op_flops
from trainwright.plan.expand import expand
from trainwright.plan.plan import Plan, Recompute
from trainwright.plan.select import select
from trainwright.plan.strategy import parse_strategy
from trainwright.plan.text import parse_plan, render_plan
from trainwright.program.check import check
from trainwright.program.compare import differences
from trainwright.program.interpret import build_program_data, interpret
from trainwright.program.lower import Program, lower
from trainwright.program.reference import reference
from trainwright.program.tabulate import tabulate
from trainwright.program.tensors import local_sizes
from trainwright.simulate.simulate import simulate

DRAWN = cases(graphs())
MODELS = cases(st.sampled_from(TINY).map(tiny))
STRATEGIES = (
    "dp2 tp2 sp", "tp4 sp dp2 zero1", "dp2 pp2 1f1b", "pp2 tp2 dp2", "dp2 pp2 zb", "cp2 tp2 ring",
    "cp2 tp2 allgather", "dp4 zero2", "dp2 tp2 zero3 full", "dp2 tp2 selective",
    "dp2 tp2 sp recompute=mlp", "dp2 tp2 recompute=core_attn", "dp2 tp2 sp recompute=dots",
    "dp2 cp2 ring recompute=norm+rope+context+out_proj+residual",
)  # fmt: skip


def lowered(case: Case) -> Program:
    """The case's program; cases that a rule forbids are drawn again."""
    try:
        return lower(case.setting, case.plan)
    except BadInput as error:
        assume("copies do not divide" not in error.rule)
        raise


def wrong(program: Program) -> list[str]:
    """Where the program's numbers differ from those of the unsplit model."""
    data = build_program_data(program)
    return differences(interpret(program, data), reference(data))


@given(DRAWN)
def test_a_drawn_graph_gives_the_same_numbers_under_any_plan(case: Case) -> None:
    assert not wrong(lowered(case))


@given(MODELS)
def test_a_small_model_gives_the_same_numbers_under_any_plan(case: Case) -> None:
    assert not wrong(lowered(case))


# One head of keys and values is not split four ways by a strategy.
SPLIT = [
    (model, each) for model in TINY for each in STRATEGIES if (model, "tp4" in each) != ("parallel", True)
]


@pytest.mark.parametrize(("model", "strategy"), SPLIT)
def test_a_small_model_gives_the_same_numbers_under_every_strategy(model: str, strategy: str) -> None:
    graph = tiny(model)
    program = lower(setting_of(graph, seq=8), expand(parse_strategy(strategy), graph, 8))
    check(program)
    assert not wrong(program)


@given(st.one_of(DRAWN, MODELS))
def test_the_checker_has_nothing_against_a_lowered_program(case: Case) -> None:
    check(lowered(case))


@given(DRAWN)
def test_splitting_conserves_flops_and_replicating_multiplies_them(case: Case) -> None:
    program = lowered(case)
    for route, builder in zip(program.routes, program.builders, strict=True):
        done: dict[int, float] = {}
        for step in route.steps:
            if step.kind == "compute" and step.phase == "F":
                instance, placed = program.instances[step.instance], route.placed[step.instance]
                for device in step.mesh.devices:
                    local = local_sizes(placed, instance.op, builder.sizes(instance), device)
                    sizes = {dim: size[0] for dim, size in local.items()}
                    done[step.instance] = done.get(step.instance, 0.0) + op_flops(instance.op, sizes)
        for index, flops in done.items():
            placed, op = route.placed[index], program.instances[index].op
            copies = prod(size for size, dim in zip(placed.mesh.axes, placed.dims, strict=True) if not dim)
            assert flops == pytest.approx(copies * op_flops(op, builder.sizes(program.instances[index])))


@given(st.one_of(DRAWN, MODELS))
def test_only_what_the_plan_recomputes_is_done_again_and_once(case: Case) -> None:
    program = lowered(case)
    said = {
        index
        for transform in case.plan.transforms
        if isinstance(transform, Recompute)
        for index in select(program.instances, transform.ops)
    }
    for route in program.routes:
        again = Counter((s.instance, s.chunk) for s in route.steps if s.phase == "R" and s.kind == "compute")
        assert {index for index, _ in again} <= said
        assert set(again.values()) <= {1}


@given(st.one_of(DRAWN, MODELS), st.permutations(range(8)))
def test_renaming_devices_of_one_switch_changes_no_number_and_no_time(case: Case, names: list[int]) -> None:
    network = case.setting.cluster.network
    flat = replace(case.setting.cluster, network=replace(network, levels=network.levels[-1:]))
    setting = replace(case.setting, cluster=flat)
    renamed = tuple(replace(a, devices=tuple(names[d] for d in a.devices)) for a in case.plan.assigns)
    before = lowered(replace(case, setting=setting))
    after = lower(setting, replace(case.plan, devices=8, assigns=renamed))
    assert not wrong(after)
    assert simulate(tabulate(after)).step_s == pytest.approx(simulate(tabulate(before)).step_s, rel=1e-9)


@given(st.one_of(DRAWN, MODELS))
def test_a_plan_is_what_its_text_says(case: Case) -> None:
    assert parse_plan(render_plan(case.plan)) == case.plan


@given(st.one_of(DRAWN, MODELS), st.data())
def test_a_plan_cut_in_two_is_the_two_together(case: Case, data: st.DataObject) -> None:
    plan = case.plan
    at = data.draw(st.integers(0, len(plan.transforms)))
    there = data.draw(st.integers(0, len(plan.assigns)))
    left = replace(plan, transforms=plan.transforms[:at], assigns=plan.assigns[:there], stages=())
    right = Plan(transforms=plan.transforms[at:], assigns=plan.assigns[there:], stages=plan.stages)
    assert left | right == plan
    assert Plan() | plan == plan == plan | Plan()
