"""Laws of a ranking by families, over questions of many sizes: what is left out, and what stands for it."""

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.search.test_find import every_strategy, question
from trainwright.estimate.step import estimate
from trainwright.search import find
from trainwright.search.families import WITHIN, family_codes, family_leaders
from trainwright.search.find import Question, evaluate, find_plans
from trainwright.search.rank import Candidates, join_candidates
from trainwright.search.variants import find_families, find_winner

MEMORIES_GB = (80.0, 1.0, 0.6, 0.45, 0.35)


def every_leader(asked: Question) -> Candidates:
    """The best of each family of every strategy, evaluated one and all."""
    found, fit = evaluate(asked, asked.job, every_strategy(asked))
    return family_leaders(found.take(fit))


@pytest.mark.parametrize("memory_gb", MEMORIES_GB)
@pytest.mark.parametrize("name", ["time", "cost", "energy"])
def test_every_family_near_the_best_is_found_with_its_best(memory_gb: float, name: str) -> None:
    asked = question(memory_gb, objective=name, families=1000)
    leaders = every_leader(asked)
    near = leaders.score < 1.5 * leaders.score[0]
    families = find_families(asked, find_plans(asked))
    best = sorted(float(each.variants.score.min()) for each in families)
    assert best[: int(near.sum())] == pytest.approx(leaders.score[near].tolist())


@pytest.mark.parametrize("memory_gb", MEMORIES_GB)
@pytest.mark.parametrize("count", [1, 3, 10])
def test_fewer_families_are_the_first_of_more(memory_gb: float, count: int) -> None:
    few, many = (question(memory_gb, families=asked) for asked in (count, 40))
    listed = [each.strategies[0] for each in find_families(many, find_plans(many))]
    assert [each.strategies[0] for each in find_families(few, find_plans(few))] == listed[:count]


@pytest.mark.parametrize("memory_gb", MEMORIES_GB)
def test_every_family_is_listed_once_and_in_order(memory_gb: float) -> None:
    asked = question(memory_gb, families=12)
    families = find_families(asked, find_plans(asked))
    firsts = join_candidates([each.representative for each in families])
    assert len(np.unique(family_codes(firsts))) == len(families)
    assert (np.diff(firsts.score) >= -1e-9 * firsts.score[:-1]).all()


@pytest.mark.parametrize("memory_gb", MEMORIES_GB)
def test_variants_are_within_1_percent_of_the_best_and_fit(memory_gb: float) -> None:
    asked = question(memory_gb, families=12)
    for family in find_families(asked, find_plans(asked)):
        variants = family.variants
        assert len(np.unique(family_codes(variants))) == 1
        assert (variants.score <= (1.0 + WITHIN) * variants.score.min()).all()
        assert len({*family.strategies}) == len(variants)
        again = estimate(replace(asked.job, global_batch=32), variants.strategies)
        assert again.feasible.all()
        assert again.step_s == pytest.approx(variants.step_s)


@pytest.mark.parametrize("memory_gb", MEMORIES_GB)
def test_no_variant_is_missed_that_needs_less_recomputation_than_all(memory_gb: float) -> None:
    asked = question(memory_gb, families=3, fixed={"recompute_layers": (0,)})
    families = find_families(asked, find_plans(asked))
    found, fit = evaluate(asked, asked.job, every_strategy(asked))
    found = found.take(fit)
    for family in families:
        both = join_candidates([family.representative, found])
        codes = family_codes(both)
        near = found.score <= (1.0 + WITHIN) * float(family.variants.score.min()) * (1.0 - 1e-12)
        listed = (found.strategies.schedule != 0) & (found.strategies.recompute_layers == 0)
        own = found.take(near & (codes[1:] == codes[0]) & listed)
        texts = {str(own.strategies[index]) for index in range(len(own))}
        assert texts <= {*family.strategies}


def test_the_order_of_blocks_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = question(0.6, families=10)
    first = [each.strategies for each in find_families(asked, find_plans(asked))]
    blocks = find.unsharded_blocks
    monkeypatch.setattr(find, "unsharded_blocks", lambda *asked: list(blocks(*asked, 500))[::-1])
    assert [each.strategies for each in find_families(asked, find_plans(asked))] == first


def test_several_batches_are_families_of_their_own() -> None:
    asked = replace(question(0.6, families=20), batches=(16, 32))
    families = find_families(asked, find_plans(asked))
    assert {int(each.variants.global_batch[0]) for each in families} == {16, 32}
    assert all(len(np.unique(each.variants.global_batch)) == 1 for each in families)


def test_the_winner_is_the_first_representative() -> None:
    asked = question(0.6, families=10)
    found, winner = find_winner(asked)
    assert str(winner.strategies[0]) == find_families(asked, find_plans(asked))[0].strategies[0]
    assert winner.score[0] <= (1.0 + WITHIN) ** 2 * found.best.score[0]
    assert find_winner(replace(asked, families=0))[1].score[0] == found.best.score[0]


def test_families_of_nothing_are_none() -> None:
    asked = question(0.01, families=10)
    assert find_families(asked, find_plans(asked)) == ()
    assert not len(find_winner(asked)[1])
