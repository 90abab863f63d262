"""Plans beyond knobs: what is drafted, what is kept, and what is said of it."""

from dataclasses import replace

import pytest

from tests.builders import free_stack, perfect, round_cluster, round_device
from trainwright.cluster.types import MemoryTier
from trainwright.estimate.types import Job
from trainwright.model.architecture import Architecture
from trainwright.model.build import build_graph
from trainwright.plan.strategy import PRECISIONS, Strategy
from trainwright.plan.zoo import build_zoo, parse_zoo
from trainwright.program.setting import Setting
from trainwright.search.blocks import measure_blocks
from trainwright.search.find import Question
from trainwright.search.findings import Findings
from trainwright.search.flexible import DEGREES, _allowed, best_strategy, find_flexible
from trainwright.search.reasons import explain
from trainwright.search.recipes import Drafts
from trainwright.search.skeletons import Freedoms, Skeleton, has_huge_vocabulary, skeletons
from trainwright.search.trial import Trial, try_plan


def setting(vocab: int = 1024, memory: float = 80e9, devices: int = 4) -> Setting:
    tier = MemoryTier(name="hbm", capacity_bytes=memory, bytes_per_s=1e12)
    architecture = Architecture(
        name="small", kind="decoder", layers=8, hidden=512, heads=8, ffn=2048, vocab=vocab, max_seq=512,
    )  # fmt: skip
    return Setting(
        graph=build_graph(architecture), cluster=round_cluster(devices, device=round_device(memory=(tier,))),
        stack=free_stack(attention="unfused"), efficiency=perfect(), seq=512,
    )  # fmt: skip


def question(of: Setting, batch: int = 16) -> Question:
    job = Job(
        graph=of.graph, cluster=of.cluster, stack=of.stack, efficiency=of.efficiency, seq=of.seq,
        global_batch=batch,
    )  # fmt: skip
    fixed = {"precision": (PRECISIONS.index(of.precision),), "offload": (0,)}
    return Question(job=job, batches=(batch,), fixed=fixed, most={"micro_batch": 2}, top=1)


def drafts_of(of: Setting) -> Drafts:
    return Drafts(batch=16, freedoms=Freedoms(), findings=Findings(setting=of))


def trial(step_s: float, **time_s: float) -> Trial:
    return Trial(
        plan="p", step_s=step_s, total_bytes=2.0**30, capacity_bytes=2.0**31, fits=True, time_s=time_s,
        device_w=300.0, tokens_per_joule=1.0, row_bytes=(0.0,),
    )  # fmt: skip


def test_a_skeleton_has_no_expert_parallelism_which_its_plan_could_not_state() -> None:
    experts = Architecture(
        name="experts", kind="decoder", layers=2, hidden=64, heads=4, ffn=256, vocab=256, max_seq=64,
        experts=4, top_k=2,
    )  # fmt: skip
    of = replace(setting(), graph=build_graph(experts), seq=64)
    assert {each.strategy.ep for each in skeletons(of, 16, Freedoms())} == {1}


@pytest.mark.parametrize("knob", DEGREES)
def test_a_limit_on_a_degree_holds_for_every_skeleton(knob: str) -> None:
    asked = replace(question(setting()), most={knob: 1})
    found = [getattr(each.strategy, knob) for each in skeletons(setting(), 16, _allowed(asked))]
    assert set(found) == {1}
    free = [getattr(each.strategy, knob) for each in skeletons(setting(), 16, Freedoms())]
    assert max(free) > 1  # so the limit changes something


def test_doing_a_layer_again_keeps_less_and_takes_longer() -> None:
    costs = measure_blocks(setting(), Strategy(), ("none", "selective", "full")).costs
    kept = [costs[mode].kept_bytes.sum() for mode in ("none", "selective", "full")]
    times = [costs[mode].time_s.sum() for mode in ("none", "selective", "full")]
    assert kept == sorted(kept, reverse=True)
    assert times == sorted(times)


def test_equal_layers_cost_the_same_and_the_ends_come_on_top() -> None:
    costs = measure_blocks(setting(), Strategy(), ("none",)).costs["none"]
    assert len(costs.time_s) == 8
    assert len(set(costs.time_s[1:-1].round(12))) == 1
    assert costs.time_s[-1] > costs.time_s[1]  # the head is counted with the last layer


def test_a_draft_takes_what_it_was_expected_to_take() -> None:
    of = setting()
    drafts = drafts_of(of)
    recipe = drafts.draft(Skeleton(strategy=Strategy(dp=2, pp=2, zero=1)))
    assert recipe is not None
    found = try_plan(of, drafts.plan(recipe), rows=2)
    assert found.step_s == pytest.approx(recipe.expected_s, rel=0.1)
    assert found.row_bytes == pytest.approx(recipe.bytes_by_row, rel=0.1)


def test_the_line_of_a_draft_gives_its_plan_again() -> None:
    of = setting()
    drafts = drafts_of(of)
    recipe = drafts.draft(Skeleton(strategy=Strategy(dp=2, pp=2, zero=1)))
    assert recipe is not None
    plan = drafts.plan(recipe)
    name, parameters = parse_zoo(plan.name)
    assert build_zoo(name, of.graph, 4, 16, **parameters) == plan


def test_only_a_huge_vocabulary_is_interlaced() -> None:
    # A layer has 12 · 512² = 3.1 M parameters: 1,024 words are 0.5 M, 64 Ki words 33.6 M.
    assert not has_huge_vocabulary(setting(vocab=1024).graph)
    assert has_huge_vocabulary(setting(vocab=65536).graph)
    schedules = {each.schedule for each in skeletons(setting(vocab=65536), 16, Freedoms())}
    assert schedules == {"1f1b", "interlaced"}
    schedules = {each.schedule for each in skeletons(setting(vocab=1024), 16, Freedoms())}
    assert schedules == {"1f1b"}


def test_every_plan_that_is_found_fits_and_beats_the_knobs() -> None:
    of = setting(vocab=65536, memory=0.9e9)
    found = find_flexible(question(of), of, most=3)
    for each in found.plans:
        assert each.fits
        assert each.total_bytes <= each.capacity_bytes
        assert found.knobs is None or each.step_s < found.knobs.step_s
    assert len(found.reasons) == len(found.plans)


def test_nothing_fits_where_there_is_no_memory() -> None:
    of = setting(memory=0.05e9)
    assert best_strategy(question(of), Findings(setting=of)) is None
    assert find_flexible(question(of), of, most=2).plans == ()


def test_a_reason_names_what_shrank_and_what_grew() -> None:
    text = explain(trial(8.0, matmul=6.0, bubble=0.5, recompute=1.5), trial(12.0, matmul=6.0, bubble=6.0))
    assert text.startswith("1.50x: less idle time (6 s to 500 ms), at the price of more recomputation")


def test_a_reason_says_if_there_is_nothing_to_compare_with() -> None:
    assert explain(trial(1.0), None).startswith("Nothing of the space compared fits")


def test_a_margin_makes_a_draft_use_less_memory() -> None:
    of = setting(memory=0.4e9)
    drafts = drafts_of(of)
    skeleton = Skeleton(strategy=Strategy(dp=2, pp=2, zero=1, micro_batch=4))
    loose, tight = drafts.draft(skeleton), drafts.draft(skeleton, [0.1e9, 0.1e9])
    assert loose is not None
    assert tight is None or max(tight.bytes_by_row) <= max(loose.bytes_by_row)
