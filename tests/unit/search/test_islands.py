"""The choice of islands, of what each does, and of how rarely they meet."""

from dataclasses import replace

import pytest

from tests.unit.program.test_meetings import setting
from trainwright.algorithm.risk import measured_risks
from trainwright.errors import BadInput, InfeasiblePlan
from trainwright.estimate.rounds import Option
from trainwright.estimate.types import Job
from trainwright.model.graph import parameters
from trainwright.search.find import Question
from trainwright.search.islands import EVERY, Run, find_apart
from trainwright.search.usual import able_knobs


def question(cluster: str, model: str = "gpt2-xl", batch: int = 80) -> Question:
    where = setting(cluster, model)
    job = Job(
        graph=where.graph, cluster=where.cluster, stack=where.stack, efficiency=where.efficiency,
        seq=where.seq, global_batch=batch,
    )  # fmt: skip
    return Question(job=job, batches=(batch,), fixed=able_knobs(where.stack) | {"precision": (0,)}, most={})


def found(cluster: str, text: str, islands: int | None = None) -> Option:
    return find_apart(question(cluster), text, islands)


def test_rounds_are_as_short_as_the_link_allows() -> None:
    # A step of 80 sequences takes about 0.3 s; 6.2 GB take 5.5 s at 10 Gb/s and 0.5 s at 100.
    slow, fast = found("h100:8x2@10Gbps", "diloco"), found("h100:8x2@100Gbps", "diloco")
    assert slow.apart.every > fast.apart.every
    longest = found("h100:8x2@10Gbps", f"diloco every={EVERY[-1]}")
    assert slow.step_s <= 1.05 * longest.step_s


def test_more_islands_are_taken_only_if_that_is_faster() -> None:
    # Nodes of 8 are joined at 50 GB/s a device: there is nothing to gain by training them apart.
    option = found("h100:16x2@10Gbps", "diloco")
    assert option.apart.islands == 2
    assert option.job.cluster.count == 16
    assert found("h100:16x2@10Gbps", "diloco", islands=4).job.cluster.count == 8


def test_what_is_stated_goes_before_what_was_measured() -> None:
    option = found("h100:8x5@10Gbps", "ist every=30 coverage=0.25", islands=5)
    assert option.apart.every == 30
    assert option.apart.algorithm.coverage == 0.25  # type: ignore[attr-defined]
    settings = {risk.setting for risk in measured_risks("ist")}
    bare = found("h100:8x5@10Gbps", "ist every=30", islands=5).apart.algorithm
    assert any(f"coverage={bare.coverage}" in each for each in settings)  # type: ignore[attr-defined]


def test_as_large_a_share_of_a_run_is_exact_as_of_the_measured_ones() -> None:
    asked, risk = question("h100:8x2@10Gbps"), next(r for r in measured_risks("ist") if r.exact_share > 0)
    assert 0.15 < risk.exact_share < 0.25
    option = find_apart(asked, "ist every=30", run=Run(steps=10_000))
    assert option.apart.exact_steps == pytest.approx(10_000 * risk.exact_share, rel=0.1)
    assert find_apart(asked, "ist every=30 warmup=0 finish=9", run=Run(steps=10_000)).apart.exact_steps == 9


def test_rounds_are_chosen_by_the_step_that_is_told_which_has_exact_ones() -> None:
    asked = question("h100:8x2@1Gbps")
    free = find_apart(asked, "ist", run=Run(steps=10_000))
    bound = find_apart(asked, "ist", run=Run(steps=10_000, exact_s=100 * free.island_step_s))
    assert bound.apart.every < free.apart.every  # the exact steps take most of the time in any case
    share = bound.exact_share(10_000)
    assert share == pytest.approx(0.18, abs=0.02)
    mean_s = share * 7.0 + (1 - share) * bound.step_s
    assert bound.mean_s(10_000, 7.0) == pytest.approx(mean_s)
    assert find_apart(asked, "diloco", run=Run(steps=60)).apart.every <= 60  # no longer than the run


def test_islands_of_subnetworks_train_less_and_faster() -> None:
    whole, part = (
        found("h100:8x5@10Gbps", text, islands=5)
        for text in ("diloco every=50", "ist every=50 coverage=0.0 warmup=0 finish=0")
    )
    assert parameters(part.job.graph) < 0.3 * parameters(whole.job.graph)
    assert part.island_step_s < 0.5 * whole.island_step_s


def test_what_the_algorithm_keeps_beside_the_model_must_fit_too() -> None:
    asked = question("h100:8x2@10Gbps")
    device = asked.job.cluster.device
    small = replace(device, memory=(replace(device.memory[0], capacity_bytes=1.0e9), *device.memory[1:]))
    tight = replace(asked, job=replace(asked.job, cluster=replace(asked.job.cluster, device=small)))
    with pytest.raises(InfeasiblePlan):
        find_apart(tight, "diloco every=50")


def test_a_batch_that_does_not_divide_is_told() -> None:
    with pytest.raises(BadInput, match="does not divide over 2 islands"):
        find_apart(question("h100:8x2@10Gbps", batch=63), "diloco")
