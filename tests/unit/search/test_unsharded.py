"""Blocks of strategies without their sharding: with it, they are what a stack can run."""

from dataclasses import replace

import numpy as np
import pytest

from trainwright.cluster.load import load_cluster
from trainwright.cost.load import load_constants
from trainwright.model.load import load_model
from trainwright.plan.strategy import Strategies, join_strategies
from trainwright.search.find import Question, build_facts, runs, space_of
from trainwright.search.space import KNOBS, Space, strategy_blocks
from trainwright.search.unsharded import UnshardedBlock, unsharded_blocks
from trainwright.sweep.ready import build_question
from trainwright.sweep.types import Setting


def asked_of(model: str, cluster: str, stack: str) -> Question:
    software = load_constants().stack(stack)
    setting = Setting(
        model=load_model(model), cluster=load_cluster(cluster), seq=4096, batch=64, stack=software
    )
    question = build_question(setting, "time")[0]
    return replace(question, job=replace(question.job, global_batch=64))


def blocks_of(question: Question, space: Space, size: int = 1 << 19) -> list[UnshardedBlock]:
    return list(unsharded_blocks(space, question.job.stack.capability, build_facts(question.job), size))


def sharded(blocks: list[UnshardedBlock]) -> Strategies:
    return join_strategies(each.sharded(np.arange(len(each.strategies))) for each in blocks)


def rows(strategies: Strategies) -> list[tuple[int, ...]]:
    return sorted(zip(*(getattr(strategies, knob).tolist() for knob in KNOBS), strict=True))


@pytest.mark.parametrize(
    "fixed", [{}, {"recompute": (0,)}, {"precision": (1, 2), "overlap": (0, 1), "pp": (1, 4)}]
)
@pytest.mark.parametrize(
    ("model", "cluster", "stack"),
    [
        ("llama3-8b", "h100:16", "megatron-core"),
        ("mixtral-8x7b", "h100:16", "megatron-core"),
        ("deepseek-v2-lite", "h100:8", "torchtitan"),
        ("mixtral-8x7b", "h100:8", "deepspeed"),
        ("mixtral-8x7b", "h100:8", "generic"),
        ("llama3-8b", "tpu-v5p:16", "maxtext"),
    ],
)
def test_all_strategies_that_the_stack_can_run_are_there_once(
    model: str, cluster: str, stack: str, fixed: dict[str, tuple[int, ...]]
) -> None:
    question = asked_of(model, cluster, stack)
    space = space_of(replace(question, fixed={"offload": (0,), **question.fixed, **fixed}), 64)
    every, ours = join_strategies(strategy_blocks(space)), sharded(blocks_of(question, space))
    able, own = every.take(runs(question.job, every)), ours.take(runs(question.job, ours))
    assert len(able) > 0
    assert rows(own) == rows(able)


def test_the_size_of_blocks_changes_no_strategy() -> None:
    question = asked_of("mixtral-8x7b", "h100:16", "megatron-core")
    space = space_of(replace(question, fixed={"offload": (0,), "recompute": (0,)}), 64)
    small = blocks_of(question, space, 100)
    assert len(small) > 1
    assert rows(sharded(small)) == rows(sharded(blocks_of(question, space)))


def test_some_strategies_are_sharded_in_blocks() -> None:
    question = asked_of("mixtral-8x7b", "h100:16", "megatron-core")
    (block,) = blocks_of(
        question, space_of(replace(question, fixed={"offload": (0,), "recompute": (0,)}), 64)
    )
    chosen = np.arange(0, len(block.strategies), 3)
    parts = list(block.blocks(chosen, 500))
    assert len(parts) > 1
    assert rows(join_strategies(parts)) == rows(block.sharded(chosen))
