"""Families of plans: what is one row of a ranking, and which variant stands for it."""

from collections.abc import Sequence

import numpy as np
import pytest

from trainwright.plan.strategy import parse_strategy, stack_strategies
from trainwright.search.families import (
    distinct_rows,
    family_codes,
    family_leaders,
    group_families,
    representative_key,
    unusual_knobs,
)
from trainwright.search.rank import Candidates

CAPACITY = 100.0

Row = tuple[str, float, float]  # strategy, seconds a step, bytes of 100


def candidates(rows: Sequence[Row], batches: Sequence[int] | None = None) -> Candidates:
    texts, steps, held = zip(*rows, strict=True)
    step_s = np.array(steps)
    return Candidates(
        strategies=stack_strategies(map(parse_strategy, texts)),
        global_batch=np.array(batches or [64] * len(rows), dtype=np.int64),
        score=step_s, step_s=step_s, total_bytes=np.array(held), least=step_s,
    )  # fmt: skip


def ranked(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    return [family.strategies for family in group_families(candidates(rows), CAPACITY)]


def test_plans_that_differ_in_degrees_or_sharding_are_rows_of_their_own() -> None:
    rows = [
        ("dp8 mb1 zero1 bf16", 1.000, 50.0),
        ("dp8 mb1 zero3 bf16", 1.001, 50.0),
        ("dp8 mb1 zero3 hsdp4 bf16", 1.002, 50.0),
        ("dp4 tp2 mb1 zero1 bf16", 1.003, 50.0),
        ("dp4 tp2 sp mb2 zero1 bf16", 1.004, 50.0),  # a variant of the one before
    ]
    first, second, third, fourth = ranked(rows)
    assert [first, second, third] == [(text,) for text, _, _ in rows[:3]]
    assert fourth == (rows[3][0], rows[4][0])


def test_what_is_more_than_1_percent_slower_is_no_variant() -> None:
    # 1 % of 2 s is 0.02 s
    rows = [("dp8 mb1 zero1 bf16", 2.0, 50.0), ("dp8 mb2 zero1 bf16", 2.02, 50.0)]
    slower = ("dp8 mb4 zero1 bf16", 2.0201, 10.0)
    assert ranked([*rows, slower]) == [(rows[0][0], rows[1][0])]


def test_the_emptier_variant_represents_a_family_then_the_one_with_fewer_unusual_knobs() -> None:
    # classes of 5 %: 98 is in (95, 100], 91 and 94 in (90, 95]
    full = ("dp4 pp2 mb1 zero1 1f1b bf16", 1.000, 98.0)
    offloaded = ("dp4 pp2 mb1 zero1 1f1b offload-optimizer bf16", 1.002, 91.0)
    plain = ("dp4 pp2 mb1 zero1 1f1b recompute=norm+rope+act+moe_act bf16", 1.008, 94.0)
    assert ranked([full, offloaded, plain]) == [(plain[0], offloaded[0], full[0])]


def test_of_equally_usual_variants_the_fastest_represents_the_family() -> None:
    slow, fast = ("dp8 mb1 zero1 bf16", 1.005, 91.0), ("dp8 mb2 zero1 bf16", 1.0, 94.0)
    assert ranked([slow, fast]) == [(fast[0], slow[0])]


def test_families_are_ranked_by_their_representatives() -> None:
    # the first family has the fastest plan (1.000 s), but is represented by one of 1.009 s
    rows = [
        ("dp8 mb2 zero1 bf16", 1.000, 99.0),
        ("dp8 mb1 zero1 bf16", 1.009, 60.0),
        ("dp4 tp2 mb1 zero1 bf16", 1.005, 60.0),
    ]
    assert [family[0] for family in ranked(rows)] == [rows[2][0], rows[1][0]]


def test_the_order_of_candidates_does_not_matter() -> None:
    rows = [
        ("dp8 mb1 zero1 bf16", 1.0, 50.0),
        ("dp8 mb2 zero1 bf16", 1.0, 50.0),
        ("dp4 tp2 mb1 zero1 bf16", 1.0, 50.0),
        ("dp4 tp2 sp mb1 zero1 bf16", 1.0, 50.0),
    ]
    assert ranked(rows) == ranked(rows[::-1])


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("dp2 tp2 pp2 vpp4 mb1 zero1 interleaved full bf16", 0),
        ("dp2 tp2 pp2 mb1 zero1 1f1b bf16 order=tp-pp-dp", 1),
        ("dp2 tp2 pp2 mb1 zero1 1f1b offload-both bf16", 1),
        ("dp2 tp2 pp2 mb1 zero1 1f1b full3 bf16", 1),
        ("dp2 tp2 pp2 vpp5 mb1 zero1 interleaved bf16", 1),
        ("dp2 tp2 pp2 mb1 zero1 zb bf16", 1),
        ("dp2 tp2 pp2 vpp8 mb1 zero1 interleaved full3 offload-optimizer bf16 order=tp-pp-dp", 4),
    ],
)
def test_unusual_knobs_are_counted(text: str, count: int) -> None:
    assert unusual_knobs(stack_strategies([parse_strategy(text)])).tolist() == [count]


def test_a_whole_number_of_memory_classes_is_in_the_lower_one() -> None:
    found = candidates([("dp8 mb1 zero1 bf16", 1.0, held) for held in (90.0, 90.1, 95.0, 95.1)])
    assert representative_key(found, CAPACITY)[0].tolist() == [18, 19, 19, 20]


def test_batches_and_precisions_are_never_variants() -> None:
    same = ("dp8 mb1 zero1 bf16", 1.0, 50.0)
    assert len(group_families(candidates([same, same], [32, 64]), CAPACITY)) == 2
    assert len(ranked([same, ("dp8 mb1 zero1 fp8", 1.0, 50.0)])) == 2


def test_the_leader_of_a_family_is_its_fastest() -> None:
    rows = [
        ("dp4 tp2 mb1 zero1 bf16", 3.0, 50.0),
        ("dp8 mb1 zero1 bf16", 2.0, 50.0),
        ("dp8 mb2 zero1 bf16", 1.0, 50.0),
    ]
    assert family_leaders(candidates(rows)).score.tolist() == [1.0, 3.0]


def test_families_have_the_same_numbers_in_few_and_in_many_rows() -> None:
    rows = [(f"dp{dp} tp{8 // dp} mb{mb} zero1 bf16", 1.0, 50.0) for dp in (1, 2, 4, 8) for mb in (1, 2)]
    few, many = candidates(rows), candidates(rows * 600)
    pairs = {
        (int(a), int(b)) for a, b in zip(family_codes(many), np.tile(family_codes(few), 600), strict=True)
    }
    assert len(pairs) == 4


def test_distinct_rows_are_the_first_of_their_kind() -> None:
    first, codes = distinct_rows([np.array([5, 3, 5, 3]), np.array([1, 1, 1, 2])])
    assert sorted(first.tolist()) == [0, 1, 3]
    assert codes[0] == codes[2]
    assert len({*codes.tolist()}) == 3
