"""The search: what it leaves out cannot win, and the order is always the same."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from tests.builders import gpt, round_cluster, round_device, round_job
from trainwright.cluster.types import MemoryTier
from trainwright.estimate.step import estimate
from trainwright.estimate.types import Job
from trainwright.plan.strategy import RECOMPUTES, SCHEDULES, Strategies, join_strategies
from trainwright.search import find
from trainwright.search.find import Question, find_front, find_plans, space_of
from trainwright.search.front import pareto_front
from trainwright.search.miss import nearest_miss
from trainwright.search.rank import Candidates, best, objective
from trainwright.search.space import KNOBS, layer_count, legal_strategies
from trainwright.stack.capability import Capability

NORM, SELECTIVE, MLP, FULL = map(RECOMPUTES.index, ("norm", "selective", "mlp", "full"))


def job(memory_gb: float = 80.0, host_gb: float = 1000.0, devices: int = 8, **changes: object) -> Job:
    tiers = (
        MemoryTier(name="hbm", capacity_bytes=memory_gb * 1e9, bytes_per_s=1e12),
        MemoryTier(name="host", capacity_bytes=host_gb * 1e9, bytes_per_s=10e9),
    )
    return round_job(gpt(), round_cluster(devices, device=round_device(memory=tiers)), 32, **changes)


def question(memory_gb: float = 80.0, **changes: object) -> Question:
    values: dict[str, object] = {"batches": (32,), "fixed": {}, "most": {}}
    return Question(job=job(memory_gb), **(values | changes))  # type: ignore[arg-type]


def every_strategy(asked: Question) -> Strategies:
    """Every legal strategy, and where activations stay, each number of recomputed layers."""
    every = legal_strategies(space_of(asked, 32))
    full = every.take((every.recompute == RECOMPUTES.index("full")) & (every.offload < 2))
    per_stage = -(-layer_count(asked.job.graph) // full.pp)
    counted = [
        replace(full, recompute_layers=np.full(len(full), count)).take(per_stage > count)
        for count in range(1, layer_count(asked.job.graph))
    ]
    return every if "recompute" in asked.fixed else join_strategies([every, *counted])


def brute_force(asked: Question, room: float = 1.0) -> float:
    """The best score of every strategy on devices with `room` times the memory, evaluated one and all."""
    result = estimate(
        job(room * asked.job.cluster.device.memory[0].capacity_bytes / 1e9), every_strategy(asked)
    )
    return float(objective(asked.objective)(asked.job, result)[result.feasible].min())


@pytest.mark.parametrize("memory_gb", [80.0, 1.0, 0.7, 0.5, 0.4, 0.3])
@pytest.mark.parametrize("name", ["time", "cost", "energy"])
def test_the_best_is_the_best_of_every_strategy(memory_gb: float, name: str) -> None:
    asked = question(memory_gb, objective=name)
    found = find_plans(asked)
    assert found.best.score[0] == pytest.approx(brute_force(asked), rel=1e-9)
    assert found.roomier.score[0] == pytest.approx(brute_force(asked, 1.25), rel=1e-9)


def test_the_least_memory_is_the_least_of_every_strategy() -> None:
    asked = question(0.5, objective="memory")
    assert find_plans(asked).best.score[0] == pytest.approx(brute_force(asked), rel=1e-9)


@pytest.mark.parametrize(
    "fixed",
    [
        {"recompute": (SELECTIVE, FULL)},
        {"recompute": (FULL,)},
        {"recompute": (NORM, SELECTIVE, MLP, FULL)},
        {"offload": (0, 3)},
        {"offload": (2,), "recompute": (0, SELECTIVE, FULL)},
        {"offload": (1, 2), "recompute": (0, NORM, FULL)},
        {"schedule": (0,)},
        {"zero": (3,)},
    ],
)
def test_constraints_do_not_hide_the_best(fixed: dict[str, tuple[int, ...]]) -> None:
    asked = question(0.6, fixed=fixed)
    found = find_plans(asked).best
    assert found.score[0] == pytest.approx(brute_force(asked), rel=1e-9)
    for knob, values in fixed.items():
        assert set(getattr(found.strategies, knob)) <= {*values}


def test_a_fixed_number_of_layers_is_kept() -> None:
    asked = question(0.45, fixed={"recompute_layers": (2, 3), "offload": (0,)})
    found = find_plans(asked).best.strategies
    assert set(found.recompute) == {RECOMPUTES.index("full")}
    assert set(found.recompute_layers) <= {2, 3}


def test_a_stage_recomputes_no_more_layers_than_it_has() -> None:
    asked = question(0.45, fixed={"recompute_layers": (0, 3), "offload": (0,)})
    found = find_plans(asked).best.strategies
    counted = found.take(found.recompute_layers > 0)
    assert len(counted)
    assert (counted.recompute_layers <= -(-layer_count(asked.job.graph) // counted.pp)).all()


@pytest.mark.parametrize("memory_gb", [80.0, 0.6, 0.4, 0.35])
def test_no_more_is_evaluated_than_considered(memory_gb: float) -> None:
    # so few strategies that almost all are evaluated, and numbers of recomputed layers beside them
    found = find_plans(question(memory_gb, fixed={"dp": (8,), "micro_batch": (1,), "offload": (0,)}))
    assert found.feasible <= found.evaluated <= found.considered


def test_nothing_is_found_twice() -> None:
    found = find_plans(question(0.45)).best.strategies
    assert len({str(found[index]) for index in range(len(found))}) == len(found)


def test_what_is_found_fits() -> None:
    found = find_plans(question(0.5))
    again = estimate(job(0.5), found.best.strategies)
    assert again.feasible.all()
    assert found.best.step_s == pytest.approx(again.step_s)


def test_recomputed_layers_are_the_fewest_that_fit() -> None:
    asked = question(0.45, fixed={"offload": (0,)})
    best_ = find_plans(asked).best.strategies
    counted = best_.take(best_.recompute_layers > 1)
    fewer = replace(counted, recompute_layers=counted.recompute_layers - 1)
    assert len(counted)
    assert estimate(asked.job, counted).feasible.all()
    assert not estimate(asked.job, fewer).feasible.any()


def test_gpipe_never_beats_1f1b() -> None:
    every = legal_strategies(
        space_of(question(fixed={"schedule": (SCHEDULES.index("1f1b"),), "pp": (2, 4, 8)}), 32)
    )
    plain = estimate(job(), every)
    gpipe = estimate(job(), replace(every, schedule=np.full(len(every), SCHEDULES.index("gpipe"))))
    assert (plain.step_s <= gpipe.step_s * (1 + 1e-12)).all()
    assert (plain.total_bytes <= gpipe.total_bytes * (1 + 1e-12)).all()


def test_neither_recomputation_nor_offloading_makes_a_step_faster() -> None:
    every = legal_strategies(space_of(question(fixed={"recompute": (0,), "offload": (0,)}), 32))

    def seconds(**changes: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        columns = {name: np.full(len(every), value) for name, value in changes.items()}
        return estimate(job(), replace(every, **columns)).step_s * (1 + 1e-12)

    none, norm, selective, full = (seconds(recompute=index) for index in (0, NORM, SELECTIVE, FULL))
    assert (none <= norm * (1 + 1e-12)).all()
    assert (norm <= selective * (1 + 1e-12)).all()
    assert (selective <= full * (1 + 1e-12)).all()
    for offload in (1, 2, 3):
        assert (none <= seconds(offload=offload) * (1 + 1e-12)).all()


def test_the_order_of_blocks_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    first = find_plans(question(0.6))
    blocks = find.unsharded_blocks
    monkeypatch.setattr(find, "unsharded_blocks", lambda *asked: list(blocks(*asked, 500))[::-1])
    second = find_plans(question(0.6))
    assert [str(first.best.strategies[i]) for i in range(20)] == [
        str(second.best.strategies[i]) for i in range(20)
    ]


def test_ties_are_broken_by_knobs() -> None:
    strategies = Strategies(**{knob: np.array([1, 1, 1]) for knob in KNOBS} | {"tp": np.array([4, 1, 2])})
    tied = candidates_of(strategies, step_s=[3.0, 3.0, 3.0], total_bytes=[1.0, 1.0, 1.0])
    assert list(best(tied, 3).strategies.tp) == [1, 2, 4]


def test_batches_are_compared_per_token() -> None:
    found = find_plans(question(batches=(8, 32)))
    per_sequence = found.best.step_s / found.best.global_batch
    assert set(found.best.global_batch[:1]) == {32}
    assert (np.diff(per_sequence) >= -1e-12).all()


def test_batches_are_compared_by_what_their_tokens_are_worth() -> None:
    asked = question(batches=(8, 64), critical_batch_tokens=8 * 1024.0)
    plain = find_plans(replace(asked, critical_batch_tokens=inf)).best
    charged = find_plans(asked).best
    assert plain.global_batch[0] == 64
    assert charged.global_batch[0] == 8
    # a batch of 8 is the critical one and needs twice the tokens, one of 64 nine times
    factor = {8: 2.0, 64: 9.0}[int(charged.global_batch[0])]
    seconds = charged.step_s[0] / (charged.global_batch[0] * 1024)
    assert charged.score[0] == pytest.approx(factor * seconds)


def test_cost_counts_electricity_that_is_paid_apart() -> None:
    asked = question(objective="cost")
    with_power = find_plans(replace(asked, dollars_per_kwh=1.0)).best
    energy = find_plans(replace(asked, objective="energy")).best
    assert with_power.score[0] >= find_plans(asked).best.score[0] + energy.score[0] / 3.6e6


def test_more_memory_never_makes_the_best_slower() -> None:
    found = find_plans(question(0.5))
    assert found.roomier.score[0] <= found.best.score[0]
    assert found.roomier.score[0] == pytest.approx(find_plans(question(0.625)).best.score[0])


def candidates_of(strategies: Strategies, step_s: list[float], total_bytes: list[float]) -> Candidates:
    steps = np.array(step_s)
    batch = np.ones(len(steps), dtype=np.int64)
    return Candidates(
        strategies=strategies,
        global_batch=batch,
        score=steps,
        step_s=steps,
        total_bytes=np.array(total_bytes),
        least=steps,
    )


def test_the_front_keeps_what_nothing_beats() -> None:
    # (1 s, 9 B) and (2 s, 5 B) and (4 s, 1 B) trade time for memory; (3 s, 5 B) and (2 s, 7 B) are beaten
    strategies = Strategies(**{knob: np.arange(1, 6) for knob in KNOBS})
    front = pareto_front(candidates_of(strategies, [1.0, 2.0, 4.0, 3.0, 2.0], [9.0, 5.0, 1.0, 5.0, 7.0]))
    assert list(front.step_s) == [1.0, 2.0, 4.0]


def test_of_equal_points_on_the_front_one_stays() -> None:
    strategies = Strategies(**{knob: np.array([2, 1]) for knob in KNOBS})
    assert list(pareto_front(candidates_of(strategies, [1.0, 1.0], [5.0, 5.0])).strategies.tp) == [1]


def test_no_strategy_beats_the_front_of_a_whole_space() -> None:
    asked = question(1.0)
    front = find_front(asked)
    every = estimate(asked.job, legal_strategies(space_of(asked, 32)))
    for step_s, total_bytes in zip(front.step_s, front.total_bytes, strict=True):
        beats = (every.step_s < step_s * (1 - 1e-9)) & (every.total_bytes < total_bytes * (1 - 1e-9))
        assert not (beats & every.feasible).any()


def test_nothing_fits_in_no_memory_and_the_nearest_miss_is_the_smallest() -> None:
    asked = question(0.01)
    found = find_plans(asked)
    assert not len(found.best)
    every = estimate(job(1e6), legal_strategies(space_of(asked, 32)))
    assert found.nearest.total_bytes[0] == pytest.approx(every.total_bytes[every.feasible].min())


def test_a_miss_names_devices_that_would_fit() -> None:
    asked = replace(question(), job=job(0.2, devices=1))
    found = find_plans(replace(asked, fixed={"offload": (0,)}))
    message = str(nearest_miss(replace(asked, fixed={"offload": (0,)}), found))
    assert "gpt does not fit on 1 round: of 24 strategies the nearest miss" in message
    assert "devices would fit" in message


def test_a_miss_that_only_the_oom_risk_excludes_says_so() -> None:
    asked = question(1.0)
    needed = find_plans(question(0.01)).nearest.total_bytes[0]
    share = 0.9 * needed / asked.job.cluster.capacity_bytes
    strict = replace(asked, filled_share=float(share))
    message = str(nearest_miss(strict, find_plans(strict)))
    assert f"of which {share:.1%} may be filled at this OOM risk" in message


def test_a_miss_names_the_constraint_to_lift() -> None:
    asked = question(
        0.5, fixed={"recompute": (0,), "offload": (0,), "micro_batch": (8,), "dp": (1,), "tp": (1,)}
    )
    message = str(nearest_miss(asked, find_plans(asked)))
    assert "a smaller micro batch would fit" in message


def test_offloaded_layers_are_the_fewest_that_fit() -> None:
    able = Capability(
        counts_offloaded_layers=True, activation_offload_pipeline=False, offloads=("none", "activations"),
        activation_offload_recomputes=("none",),
    )  # fmt: skip
    asked = question(0.45, fixed={"pp": (1,), "offload": (0, 2), "recompute": (0,)})
    asked = replace(asked, job=replace(asked.job, stack=replace(asked.job.stack, capability=able)))
    best_ = find_plans(asked).best.strategies
    counted = best_.take(best_.offload_layers > 1)
    fewer = replace(counted, offload_layers=counted.offload_layers - 1)
    assert len(counted)
    assert estimate(asked.job, counted).feasible.all()
    assert not estimate(asked.job, fewer).feasible.any()
    every = replace(counted, offload_layers=np.zeros(len(counted), dtype=np.int64))
    assert (estimate(asked.job, counted).step_s <= estimate(asked.job, every).step_s).all()
