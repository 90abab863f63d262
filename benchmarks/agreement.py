"""How closely the closed form and the simulation agree, over random models, clusters and strategies.

    python benchmarks/agreement.py [DRAWS] [SEED]

Every draw is a catalog model on a catalog cluster with a random batch and a strategy chosen at random among
those that are legal and fit. Prints the distribution of simulated over estimated step time, and the worst.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trainwright.cluster.load import load_cluster
from trainwright.cost.load import load_constants
from trainwright.estimate.step import estimate
from trainwright.estimate.types import Job
from trainwright.model.build import build_graph
from trainwright.model.load import load_model
from trainwright.plan.expand import expand
from trainwright.plan.strategy import Strategy, stack_strategies
from trainwright.program.lower import lower
from trainwright.program.setting import Setting
from trainwright.program.tabulate import tabulate
from trainwright.search.space import Space, legal_strategies
from trainwright.simulate.simulate import simulate

MODELS = (
    "gpt2-xl", "gpt3-1.3b", "gpt3-6.7b", "gpt3-13b", "gpt3-175b", "llama2-7b", "llama2-13b", "llama2-70b",
    "llama3-8b", "llama3-70b", "llama3-405b", "mistral-7b", "qwen2.5-32b", "opt-30b", "bloom-176b",
    "mixtral-8x7b", "mixtral-8x22b",
)  # fmt: skip
CLUSTERS = (
    "v100-32gb:32", "a100:8", "a100:64", "a100:256", "a100-40gb:64", "h100:8", "h100:64", "h100:512", "h200:128",
    "gb200:144", "mi300x:64",
)  # fmt: skip
STACKS = ("megatron-core", "torchtitan", "generic", "megatron-deepspeed")
MOST_TASKS = 1_500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """One question to both."""

    name: str
    job: Job
    strategy: Strategy


def draws(count: int, seed: int, near: float = 0.0) -> Iterator[Draw]:
    """So many random draws, the same for the same seed."""
    random = np.random.default_rng(seed)
    constants = load_constants()
    made = 0
    while made < count:
        model, cluster, stack = (str(random.choice(each)) for each in (MODELS, CLUSTERS, STACKS))
        batch = int(2 ** random.integers(3, 11))
        seq = int(random.choice((2048, 4096, 8192)))
        found = load_cluster(cluster)
        job = Job(
            graph=build_graph(load_model(model)), cluster=found, stack=constants.stack(stack),
            efficiency=constants.efficiency(found.device), seq=seq, global_batch=batch,
        )  # fmt: skip
        space = Space(
            graph=job.graph, devices=found.count, seq=seq, global_batch=batch, fixed={"overlap": (0, 1)}, most={}
        )
        every = legal_strategies(space)
        if not len(every):
            continue
        few = every.take(random.choice(len(every), size=min(len(every), 3000), replace=False))
        found_ = estimate(job, few, detail=False)
        fits = np.flatnonzero(found_.feasible)
        if near and len(fits):
            fits = fits[found_.step_s[fits] <= near * found_.step_s[fits].min()]
        for index in random.choice(fits, size=min(3, len(fits)), replace=False) if len(fits) else ():
            strategy = few[int(index)]
            tasks = 30 * 100 * batch / (strategy.dp * strategy.micro_batch)
            if tasks < MOST_TASKS and made < count:
                made += 1
                yield Draw(name=f"{model} {cluster} {stack} seq{seq} gb{batch}", job=job, strategy=strategy)


def ratio(draw: Draw) -> float:
    """Simulated over estimated step time."""
    job, stack = draw.job, draw.job.stack
    plan = expand(
        draw.strategy, job.graph, int(job.global_batch), fused=stack.attention != "unfused",
        balanced=stack.balanced_stages,
    )  # fmt: skip
    setting = Setting(
        graph=job.graph, cluster=job.cluster, stack=stack, efficiency=job.efficiency, seq=job.seq,
        precision=plan.precision,
    )  # fmt: skip
    simulated = simulate(tabulate(lower(setting, plan))).step_s
    return simulated / float(estimate(job, stack_strategies([draw.strategy]), detail=False).step_s[0])


def main(count: int, seed: int) -> None:
    """Print how the two agree."""
    found: list[tuple[float, Draw]] = []
    for number, draw in enumerate(draws(count, seed), start=1):
        found.append((ratio(draw), draw))
        if sys.stderr.isatty():
            print(f"\r{number}/{count}", end="", file=sys.stderr)
    off = np.array([abs(value - 1.0) for value, _ in found])
    print(f"{len(off)} draws: median {np.median(off):.2%}, 90 % within {np.quantile(off, 0.9):.2%}, "
          f"99 % within {np.quantile(off, 0.99):.2%}, worst {off.max():.2%}; within 3 %: {(off <= 0.03).mean():.1%}")  # fmt: skip
    for value, draw in sorted(found, key=lambda each: -abs(each[0] - 1.0))[:25]:
        print(f"{value:.4f}  {draw.name}  {draw.strategy}")


if __name__ == "__main__":
    main(*(int(word) for word in (sys.argv[1:] + ["2000", "1"][len(sys.argv) - 1 :])))
