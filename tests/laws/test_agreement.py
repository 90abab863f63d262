"""The closed form and the simulation give the same step time, within 3 %, for strategies that people run.

Zero-bubble schedules only within 3.5 %: 3.04 % since the constants of 2026-11-16. Twelve stages of eight
chunks too: 3.09 % since layers wait for their new weights. Without interference it is 0.6 %: rows that
communication slows one after another hold each other up more often than the closed form counts.

`benchmarks/agreement.py` compares them on 2,000 random ones; docs/agreement.md says where they differ.
"""

from dataclasses import replace

import numpy as np
import pytest

from trainwright.cluster.load import load_cluster
from trainwright.cost.load import load_constants
from trainwright.estimate.step import estimate
from trainwright.estimate.types import Job
from trainwright.model.build import build_graph
from trainwright.model.load import load_model
from trainwright.plan.expand import expand
from trainwright.plan.strategy import parse_strategy, stack_strategies
from trainwright.program.lower import lower
from trainwright.program.setting import Setting
from trainwright.program.table import CATEGORIES
from trainwright.program.tabulate import tabulate
from trainwright.simulate.memory import curve
from trainwright.simulate.simulate import simulate
from trainwright.simulate.timeline import Timeline

CASES = (
    ("gpt3-1.3b", "a100:8", "dp8 mb1 zero0", 64),
    ("gpt3-1.3b", "a100:8", "dp8 mb1 zero1", 64),
    ("gpt3-1.3b", "a100:8", "dp8 mb2 zero2 full", 64),
    ("llama2-7b", "h100:16", "dp16 mb1 zero3", 64),
    ("llama2-7b", "h100:16", "dp16 mb1 zero3 full no-overlap", 64),
    ("llama2-7b", "h100:16", "dp2 tp8 mb1 zero1", 32),
    ("llama2-7b", "h100:16", "dp2 tp8 sp mb1 zero1 full", 32),
    ("llama3-8b", "h100:16", "dp4 tp2 pp2 mb1 zero1 1f1b", 64),
    ("llama3-8b", "h100:16", "dp4 pp4 mb1 zero0 gpipe", 64),
    ("llama3-8b", "h100:16", "dp2 tp2 sp pp4 vpp2 mb1 zero1 interleaved selective", 32),
    # Gradients of all chunks but the first are reduced beside the last round of the others.
    ("llama2-13b", "a100:64", "dp8 tp2 sp pp4 vpp5 mb1 zero0 interleaved", 64),
    ("llama2-70b", "h100:256", "dp16 tp8 sp pp2 vpp8 mb2 zero1 interleaved selective", 256),
    ("gpt3-175b", "h100:4608", "dp48 tp8 sp pp12 vpp8 mb2 zero1 interleaved", 1152),
    # 126 layers and two ends are 128 chunks
    ("llama3-405b", "gb200:64", "dp1 tp4 sp pp16 vpp8 mb1 zero1 interleaved selective", 32),
    ("gpt3-13b", "a100:32", "dp1 tp4 pp8 mb1 zero0 1f1b full", 64),
    ("gpt3-13b", "a100:32", "dp2 tp4 pp4 mb1 zero0 zb", 64),
    # Modules of dense layers, of layers with experts, of latent attention
    ("llama3-8b", "h100:8", "dp2 tp4 sp mb1 zero1 recompute=mlp", 16),
    ("llama3-8b", "h100:8", "dp4 cp2 mb1 zero1 recompute=norm+core_attn", 16),
    ("llama3-8b", "h100:8", "dp2 tp2 sp pp2 mb1 zero1 1f1b recompute=dots", 32),
    ("llama3-8b", "h100:8", "dp8 mb1 zero3 recompute=norm+rope+context+out_proj+residual+act+mlp_up", 16),
    ("mixtral-8x7b", "h100:8", "dp8 ep8 mb1 zero1 recompute=mlp_norm+moe_act", 16),
    ("mixtral-8x7b", "h100:8", "dp4 tp2 sp ep4 mb1 zero1 recompute=moe", 16),
    ("deepseek-v2-lite", "h100:8", "dp8 mb1 zero1 recompute=norm+mla_up_proj+moe_act", 16),
    ("deepseek-v2-lite", "h100:8", "dp8 mb1 zero1 recompute=shared_experts", 16),
)
KEPT = (
    ("llama3-8b", "dp8 mb1", ("norm", "act", "selective", "mlp", "core_attn", "context", "dots")),
    ("llama3-8b", "dp2 tp4 mb1", ("norm", "act", "selective", "mlp", "core_attn", "context", "dots")),
    ("mixtral-8x7b", "dp8 ep8 mb1", ("mlp_norm", "moe_act", "norm+moe_act", "moe", "dots")),
    ("deepseek-v2-lite", "dp8 mb1", ("norm", "mla_up_proj", "shared_experts", "moe", "dots")),
)
GIB = 2.0**30


@pytest.mark.parametrize(("model", "cluster", "text", "batch"), CASES)
def test_both_say_the_same_within_3_percent(model: str, cluster: str, text: str, batch: int) -> None:
    constants, found = load_constants(), load_cluster(cluster)
    graph, strategy = build_graph(load_model(model)), parse_strategy(text)
    stack, efficiency = constants.stack("megatron-core"), constants.efficiency(found.device)
    job = Job(
        graph=graph, cluster=found, stack=stack, efficiency=efficiency, seq=2048, global_batch=batch
    )  # fmt: skip
    closed = float(estimate(job, stack_strategies([strategy]), detail=False).step_s[0])
    setting = Setting(graph=graph, cluster=found, stack=stack, efficiency=efficiency, seq=2048)
    step_s = simulate(tabulate(lower(setting, expand(strategy, graph, batch)))).step_s
    loose = strategy.schedule == "zb" or strategy.pp * strategy.vpp == 96
    assert step_s == pytest.approx(closed, rel=0.035 if loose else 0.03)


@pytest.mark.parametrize("imbalance", [1.0, 1.5, 2.5])
@pytest.mark.parametrize(
    "text", ["dp8 ep8 mb1 zero1", "dp8 ep1 mb1 zero1", "dp4 tp2 sp ep4 etp2 mb1 zero1 recompute=moe"]
)
def test_both_say_the_same_of_uneven_experts(text: str, imbalance: float) -> None:
    constants, found = load_constants(), load_cluster("h100:8")
    graph, strategy = build_graph(load_model("mixtral-8x7b")), parse_strategy(text)
    own, efficiency = constants.stack("megatron-core"), constants.efficiency(found.device)
    steps = []
    for stack in (own, replace(own, stated_imbalance=imbalance)):
        job = Job(graph=graph, cluster=found, stack=stack, efficiency=efficiency, seq=2048, global_batch=16)
        closed = float(estimate(job, stack_strategies([strategy]), detail=False).step_s[0])
        setting = Setting(graph=graph, cluster=found, stack=stack, efficiency=efficiency, seq=2048)
        simulated = simulate(tabulate(lower(setting, expand(strategy, graph, 16)))).step_s
        assert simulated == pytest.approx(closed, rel=0.03)
        steps.append((closed, simulated))
    added = [after - before for before, after in zip(*steps, strict=True)]
    # Of what is repeated, the closed form takes the longer of all work and all launches, the simulation of
    # each operator.
    within = 0.15 if strategy.recompute != "none" else 0.02
    assert added[1] == pytest.approx(added[0], rel=within, abs=1e-9)
    assert (added[0] > 0.0) == (imbalance > own.expert_imbalance and strategy.ep > 1)


@pytest.mark.parametrize(("model", "degrees", "sets"), KEPT)
def test_both_free_the_same_by_recomputing_modules(model: str, degrees: str, sets: tuple[str, ...]) -> None:
    """Against no recomputation, of one microbatch: what is kept for backward, at the peak before backward."""
    constants, found = load_constants(), load_cluster("h100:8")
    graph = build_graph(load_model(model))
    stack = replace(constants.stack("megatron-core"), workspace=0.0)
    efficiency = constants.efficiency(found.device)
    setting = Setting(graph=graph, cluster=found, stack=stack, efficiency=efficiency, seq=2048)
    texts = [f"{degrees} recompute={each}" for each in ("none", *sets)]
    strategies = [parse_strategy(text) for text in texts]
    batch = strategies[0].dp
    job = Job(graph=graph, cluster=found, stack=stack, efficiency=efficiency, seq=2048, global_batch=batch)
    closed = estimate(job, stack_strategies(strategies), detail=False).memory_bytes["activations"]
    held = [
        _kept_bytes(simulate(tabulate(lower(setting, expand(strategy, graph, batch)))))
        for strategy in strategies
    ]
    freed = closed[0] - closed[1:], held[0] - np.array(held[1:])
    for text, by_form, by_program in zip(texts[1:], *freed, strict=True):
        assert by_program == pytest.approx(by_form, rel=0.02, abs=0.05 * GIB), text


def _kept_bytes(timeline: Timeline) -> float:
    """Activations on the first device when the last forward has ended."""
    table = timeline.table
    forward = np.array([label.endswith(" F") for label in table.labels])[table.label]
    end_s = float(timeline.end_s[forward].max())
    found = curve(timeline, 0)
    at = int(np.searchsorted(found.time_s, end_s * (1 - 1e-12), side="right")) - 1
    return float(found.category_bytes[CATEGORIES.index("activations"), at])
