"""Plans whose layers are split in different ways: which are drafted, how they are said, when they win."""

import pytest

from tests.builders import free_stack, perfect, round_cluster
from tests.unit.search.test_flexible import drafts_of, setting
from trainwright.model.build import build_graph
from trainwright.model.load import load_model
from trainwright.plan.strategy import Strategy
from trainwright.plan.zoo import build_zoo, parse_zoo
from trainwright.program.check import check
from trainwright.program.lower import lower
from trainwright.program.setting import Setting
from trainwright.search.findings import Findings, joined
from trainwright.search.skeletons import (
    Freedoms,
    Skeleton,
    kinds,
    plan_parameters,
    skeletons,
    with_ranges,
)
from trainwright.search.trial import try_plan

NARROW = Strategy(dp=2, tp=2, sp=True, zero=1)
WIDE = Strategy(dp=4, zero=1)


def swin(devices: int = 4) -> Setting:
    architecture = load_model("swin-1.8b")
    return Setting(
        graph=build_graph(architecture), cluster=round_cluster(devices), stack=free_stack(),
        efficiency=perfect(), seq=architecture.max_seq,
    )  # fmt: skip


def test_only_layers_of_other_sizes_are_of_another_kind() -> None:
    # 2 layers of the first stage, 2 of the second, 26 of the third, 2 of the last.
    assert kinds(swin().graph) == [2, 4, 30]
    assert kinds(setting().graph) == []


def test_layers_without_numbers_of_their_own_have_no_ranges() -> None:
    assert kinds(build_graph(load_model("mbart-4.7b"))) == []


def test_ranges_share_a_microbatch_of_the_widest() -> None:
    # Four replicas of one sample each, then two of two: four samples in both.
    found = list(with_ranges([Skeleton(strategy=WIDE), Skeleton(strategy=NARROW)], [2]))
    assert [[(first, one.dp, one.tp, one.micro_batch) for first, one in each.ranges] for each in found] == [
        [(0, 4, 1, 1), (2, 2, 2, 2)],
        [(0, 2, 2, 2), (2, 4, 1, 1)],
    ]
    assert {each.strategy for each in found} == {WIDE}


def test_pipelines_and_schedules_are_not_mixed() -> None:
    other = Strategy(dp=2, pp=2, zero=1)
    assert not list(with_ranges([Skeleton(strategy=WIDE), Skeleton(strategy=other)], [2]))


def test_layers_of_ranges_cost_what_they_cost_in_their_split() -> None:
    of = setting()
    one, other = (Findings(setting=of).profile(each, ("none",)) for each in (WIDE, NARROW))
    both = joined([one, other], [0, 3]).costs["none"].time_s
    assert both[:3].tolist() == one.costs["none"].time_s[:3].tolist()
    assert both[3:].tolist() == other.costs["none"].time_s[3:].tolist()


@pytest.mark.parametrize(
    "skeleton",
    [
        Skeleton(strategy=WIDE, ranges=((0, WIDE), (3, Strategy(dp=2, tp=2, sp=True, micro_batch=2)))),
        Skeleton(strategy=WIDE, wide_vocabulary=True),
    ],
)
def test_a_draft_with_different_degrees_takes_what_was_expected(skeleton: Skeleton) -> None:
    of = setting(vocab=65536)
    drafts = drafts_of(of)
    recipe = drafts.draft(skeleton)
    assert recipe is not None
    plan = drafts.plan(recipe)
    name, parameters = parse_zoo(plan.name)
    assert build_zoo(name, of.graph, 4, 16, **parameters) == plan
    check(lower(of, plan))
    found = try_plan(of, plan)
    assert found.step_s == pytest.approx(recipe.expected_s, rel=0.2)
    assert found.row_bytes == pytest.approx(recipe.bytes_by_row, rel=0.25)


def test_degrees_are_said_range_by_range() -> None:
    narrow = Strategy(dp=2, tp=2, sp=True, micro_batch=2)
    mixed = Skeleton(strategy=WIDE, ranges=((0, WIDE), (3, narrow)))
    assert plan_parameters(mixed, (8,)) == {"zero": 1, "degrees": "0-2:dp4,3-:tp2sp"}
    wide = Skeleton(strategy=NARROW, wide_vocabulary=True)
    assert plan_parameters(wide, (8,)) == {"zero": 1, "degrees": "0-:tp2sp,vocab:tp4"}


def test_a_huge_vocabulary_may_have_a_part_on_every_device() -> None:
    of = setting(vocab=65536)
    wide = [each for each in skeletons(of, 16, Freedoms()) if each.wide_vocabulary and each.strategy.pp == 1]
    assert wide
    assert all(each.strategy.dp * each.strategy.cp > 1 for each in wide)
    none = Freedoms(wide_vocabulary=False, interlaced=False)
    assert not any(each.wide_vocabulary for each in skeletons(of, 16, none))


def test_copies_of_a_huge_vocabulary_need_more_memory_than_parts() -> None:
    # 64 Ki words of 512 are 33.6 M parameters, the 8 layers 25 M.
    of = setting(vocab=65536)
    drafts = drafts_of(of)
    copies, parts = (drafts.draft(Skeleton(strategy=WIDE, wide_vocabulary=each)) for each in (False, True))
    assert copies is not None
    assert parts is not None
    assert max(parts.bytes_by_row) < max(copies.bytes_by_row)
