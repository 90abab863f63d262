"""The batch that is chosen for a target trains tokens about as fast as the best within it."""

import os
from dataclasses import replace
from math import inf
from random import Random

import numpy as np
import pytest

from trainwright.cluster.load import load_cluster
from trainwright.errors import BadInput
from trainwright.model.load import load_model
from trainwright.plan.strategy import Strategies
from trainwright.search import batch_probe, find
from trainwright.search.batch_choice import NoBatch, choose_batch, nearby_batch
from trainwright.search.batch_limit import batch_limit
from trainwright.search.batch_probe import probe_batches
from trainwright.search.batch_target import BatchTarget, build_target
from trainwright.search.find import Question, find_plans, space_of
from trainwright.search.space import batch_unit, even_sizes, legal_strategies
from trainwright.sweep.ready import build_question
from trainwright.sweep.types import Setting

THOROUGH = bool(os.environ.get("THOROUGH"))  # `make thorough`: more of the same
DRAWS = 200 if THOROUGH else 10
MOST_SEQUENCES = 2048 if THOROUGH else 400  # of which 6 % are compared
MOST_DEVICES = 512 if THOROUGH else 64
COMPARED = 24  # batches, where a target has more
MODELS = ("llama2-7b", "llama3-8b", "gpt2", "gpt3-13b", "llama3.2-1b", "llama3-70b", "deepseek-v2-lite")
SHARE = 0.97  # of the throughput of the best batch


def question(model: str, cluster: str, seq: int) -> Question:
    setting = Setting(model=load_model(model), cluster=load_cluster(cluster), seq=seq, batch=1)
    return build_question(setting, "time")[0]


def target(asked: Question, tokens: float) -> BatchTarget:
    return build_target(tokens, asked.job.seq, 0.03, f"{tokens:,.0f} tokens", "--batch-tokens")


def sequences_per_s(asked: Question, batch: int) -> float:
    """Of the best plan at a batch; 0 if there is none."""
    try:
        best = find_plans(replace(asked, batches=(batch,))).best
    except BadInput:  # no legal strategy
        return 0.0
    return batch / float(best.step_s[0]) if len(best) else 0.0


def compared(wanted: BatchTarget, devices: int, draw: Random) -> list[int]:
    """Every batch of a target, or the roundest and some others of very many."""
    every = list(range(wanted.low, wanted.high + 1))
    if len(every) <= COMPARED:
        return every
    half = COMPARED // 2
    return sorted({*wanted.roundest(devices, half), *draw.sample(every, half)})


@pytest.mark.parametrize("seed", range(DRAWS))
def test_a_random_target_gets_97_percent_of_its_best_batch(seed: int) -> None:
    draw = Random(seed)
    model, device = draw.choice(MODELS), draw.choice(("a100", "h100", "h200", "b200"))
    counts = [8, 12, 16, 24, 32, 40, 48, 56, 64, 96, 104, 120, 128, 160, 192, 256, 320, 384, 512]
    devices = draw.choice([each for each in counts if each <= MOST_DEVICES])
    seq = draw.choice((1024, 2048, 4096, 8192))
    asked = question(model, f"{device}:{devices}", seq)
    wanted = target(asked, seq * MOST_SEQUENCES ** draw.uniform(0.4, 1.0))
    chosen = choose_batch(asked, wanted)
    assert chosen in wanted
    best = max(sequences_per_s(asked, batch) for batch in compared(wanted, devices, draw))
    assert sequences_per_s(asked, chosen) >= SHARE * best, f"{model} {device}:{devices} {wanted} {chosen}"


@pytest.mark.parametrize(
    ("model", "cluster", "seq", "tokens"),
    [
        ("llama2-7b", "a100:128", 4096, 4e6),
        ("llama2-7b", "a100:128", 4096, 4 * 2.0**20),
        ("llama3-70b", "h100:512", 8192, 16e6),
        ("llama3-70b", "h100:512", 8192, 16 * 2.0**20),
    ],
)
def test_well_known_targets_get_97_percent_of_their_best_batch(
    model: str, cluster: str, seq: int, tokens: float
) -> None:
    asked = question(model, cluster, seq)
    wanted = target(asked, tokens)
    few = compared(wanted, asked.job.cluster.count, Random(0))
    best = max(sequences_per_s(asked, batch) for batch in few)
    assert sequences_per_s(asked, choose_batch(asked, wanted)) >= SHARE * best


def test_deepseek_on_2048_b200_is_as_fast_as_at_its_own_batch() -> None:
    asked = question("deepseek-v3", "b200:2048", 4096)
    chosen = choose_batch(asked, target(asked, 63e6))  # of 14,920 to 15,842
    is_same = chosen == 15_360  # then it need not be searched
    assert is_same or sequences_per_s(asked, chosen) >= SHARE * sequences_per_s(asked, 15_360)


def test_a_batch_that_divides_is_kept_as_asked() -> None:
    asked = question("llama3-8b", "h100:8", 8192)
    assert choose_batch(asked, target(asked, 512 * 8192)) == 512


def test_a_tolerance_of_zero_leaves_one_batch() -> None:
    asked = question("llama2-7b", "a100:128", 4096)
    assert choose_batch(asked, build_target(4e6, 4096, 0.0, "4e6", "--batch-tokens")) == 977


def test_a_target_that_no_strategy_divides_names_the_nearest_batch() -> None:
    asked = replace(question("gpt2", "h100:8", 1024), fixed={"dp": (8,), "micro_batch": (66,)})
    with pytest.raises(NoBatch, match=r"no batch of 497 to 527 sequences is legal on 8 .*; 528 sequences"):
        choose_batch(asked, target(asked, 512 * 1024))
    none = replace(asked, fixed={"dp": (8,), "micro_batch": (5000,)})
    with pytest.raises(NoBatch, match="relax --fix and --max"):
        choose_batch(none, target(none, 512 * 1024))


def test_a_constraint_that_no_batch_could_meet_is_told_as_such() -> None:
    asked = question("gpt2", "h100:8", 1024)
    asked = replace(asked, fixed={**asked.fixed, "tp": (3,)})
    with pytest.raises(BadInput, match=r"--fix tp .* does not divide 8 devices"):
        choose_batch(asked, target(asked, 512 * 1024))


def test_what_the_user_fixes_decides_the_batch() -> None:
    asked = question("gpt2", "h100:8", 1024)
    asked = replace(asked, fixed={**asked.fixed, "dp": (8,), "micro_batch": (7,)})
    assert choose_batch(asked, target(asked, 500 * 1024)) == 504  # the only multiple of 56 from 485 to 515


def test_a_batch_divides_over_islands_if_one_does() -> None:
    asked = question("gpt2", "h100:8", 1024)
    wanted = target(asked, 500 * 1024)
    assert choose_batch(asked, wanted, multiple=7) % 7 == 0
    assert choose_batch(asked, wanted, multiple=1000) in wanted


def test_a_critical_batch_prefers_the_smaller_of_batches_that_are_as_fast() -> None:
    asked = question("gpt2", "h100:8", 1024)
    span = (400, 600)
    plain, charged = (
        probe_batches(replace(asked, critical_batch_tokens=critical), span, 500.0)
        for critical in (inf, 512 * 1024.0)
    )
    # a batch of 512 sequences needs twice the tokens
    at = plain.batches.tolist().index(512)
    assert charged.sequence_s[at] == pytest.approx(2.0 * plain.sequence_s[at])
    assert plain.batches.tolist() == list(range(400, 601))


def test_the_look_at_a_range_predicts_what_the_search_finds() -> None:
    asked = question("llama2-7b", "a100:128", 4096)
    times = probe_batches(asked, (948, 1005), 977.0)
    for batch in (960, 977, 992):
        predicted = times.sequence_s[times.batches.tolist().index(batch)]
        assert 1.0 / predicted == pytest.approx(sequences_per_s(asked, batch), rel=0.03)


@pytest.mark.parametrize(
    ("model", "cluster", "tokens"),
    [
        ("llama2-7b", "a100:128", 2.0**22),
        ("llama3-70b", "h100:512", 2.0**24),
        ("deepseek-v3", "b200:256", 2e7),
    ],
)
def test_choosing_evaluates_less_than_a_third_of_what_a_search_without_bounds_does(
    model: str, cluster: str, tokens: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluated = 0
    estimate = batch_probe.estimate

    def counted(job: object, strategies: Strategies, **words: bool) -> object:
        nonlocal evaluated
        evaluated += len(strategies)
        return estimate(job, strategies, **words)  # type: ignore[arg-type]

    monkeypatch.setattr(batch_probe, "estimate", counted)
    asked = question(model, cluster, 4096)
    chosen = choose_batch(asked, target(asked, tokens))
    monkeypatch.setattr(find, "_least_score", lambda _question, _job, each: np.zeros(len(each)))
    assert 0 < 3 * evaluated < find_plans(replace(asked, batches=(chosen,))).evaluated


def test_very_many_batches_are_thinned_to_multiples_of_a_power_of_two() -> None:
    asked = question("gpt2", "h100:8", 1024)
    times = probe_batches(asked, (970_000, 1_030_000), 1e6)
    assert len(times.batches) < 4096
    assert (times.batches % 16 == 0).all()
    assert times.legal.all()


def test_a_stated_batch_that_divides_badly_is_what_limits() -> None:
    asked = replace(question("llama2-7b", "a100:128", 4096), batches=(977,))
    limit = batch_limit(asked, find_plans(asked).best)
    assert limit is not None
    assert (limit.batch, limit.better) == (977, 1024)
    gain = sequences_per_s(asked, 1024) / sequences_per_s(asked, 977)
    assert limit.faster == pytest.approx(gain)
    assert gain > 1.5
    assert "977 sequences divide badly over 128 devices; at 1024 (4.8% more)" in str(limit)


def test_a_batch_that_divides_limits_nothing() -> None:
    asked = replace(question("gpt2", "h100:8", 1024), batches=(64,))
    assert nearby_batch(asked, 64) is None  # a multiple of the devices
    assert nearby_batch(asked, 4) is None  # a divisor of them
    assert batch_limit(asked, find_plans(asked).best) is None
    several = replace(asked, batches=(63, 64))
    assert batch_limit(several, find_plans(several).best) is None


def test_a_batch_that_is_small_for_the_devices_is_what_limits() -> None:
    asked = replace(question("llama3-8b", "h100:512", 8192), batches=(64,))
    limit = batch_limit(asked, find_plans(asked).best)
    assert limit is not None
    assert limit.better == 128
    gain = sequences_per_s(asked, 128) / sequences_per_s(asked, 64)
    assert limit.faster == pytest.approx(gain, rel=0.03)
    assert "64 sequences are few for 512 devices; at 128 (twice) the best plan" in str(limit)


def test_a_range_has_the_strategies_of_each_of_its_batches() -> None:
    asked = question("gpt2", "h100:8", 1024)
    fixed = {**asked.fixed, "micro_batch": (2,)}
    asked = replace(asked, fixed=fixed)
    ranged = legal_strategies(replace(space_of(asked, 20), span=(12, 20)))
    assert ((20 // batch_unit(ranged) * batch_unit(ranged)) >= 12).all()
    exact = {str(legal_strategies(space_of(asked, batch))[0]) for batch in (12, 16, 20)}
    assert exact <= {str(ranged[row]) for row in range(len(ranged))}


def test_even_sizes_are_a_quarter_apart() -> None:
    assert even_sizes(24) == (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24)


def test_a_model_that_does_not_fit_gets_the_roundest_legal_batch() -> None:
    asked = question("llama3-405b", "rtx-4090:8", 4096)
    assert not len(find_plans(replace(asked, batches=(488,))).best)
    assert choose_batch(asked, target(asked, 2e6)) == 480  # of 474 to 502, 2^5 x 15
