"""How closely the closed form and the simulation agree, over random models, clusters and strategies.

    python benchmarks/agreement.py [DRAWS] [SEED] [sites]

Every draw is a catalog model on a catalog cluster with a random batch and a strategy chosen at random among
those that are legal and fit. Prints the distribution of simulated over estimated step time, and the worst.
With `sites`, clusters are two sites joined at 1 to 25 Gb/s, 1 to 30 ms apart; the outermost axis is pp or dp.
"""

import multiprocessing
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from trainwright.cluster.load import load_cluster
from trainwright.cluster.types import Cluster
from trainwright.cost.load import load_constants
from trainwright.errors import TrainwrightError
from trainwright.estimate.step import estimate
from trainwright.estimate.types import Job
from trainwright.model.build import build_graph
from trainwright.model.load import load_model
from trainwright.plan.expand import expand
from trainwright.plan.mapping import ORDERS
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
    "v100-32gb:32", "a100:8", "a100:64", "a100:256", "a100-40gb:64", "h100:8", "h100:64", "h100:512",
    "h200:128",
    "gb200:144", "mi300x:64",
)  # fmt: skip
SITES = ("a100:8", "h100:8", "h100:16", "a100:32", "h200:32", "v100-32gb:16")  # each of two
OUTERMOST = tuple(ORDERS.index(each) for each in ("tp-cp-dp-pp", "tp-cp-pp-dp"))
STACKS = ("megatron-core", "torchtitan", "generic", "megatron-deepspeed")
MOST_TASKS = 400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """One question to both."""

    name: str
    job: Job
    strategy: Strategy


def draw_cluster(random: np.random.Generator, sites: bool) -> Cluster:
    """A catalog cluster, or two of them with a slow link between them."""
    if not sites:
        return load_cluster(str(random.choice(CLUSTERS)))
    rate, latency_ms = 25.0 ** random.uniform(), 30.0 ** random.uniform()
    return load_cluster(f"{random.choice(SITES)}x2@{rate:.1f}Gbps@{latency_ms:.1f}ms")


def draws(count: int, seed: int, sites: bool = False) -> Iterator[Draw]:
    """So many random draws, the same for the same seed."""
    random = np.random.default_rng(seed)
    constants = load_constants()
    made = 0
    while made < count:
        model = str(random.choice(MODELS))
        found = draw_cluster(random, sites)
        stack = str(random.choice(STACKS))
        batch = int(2 ** random.integers(3, 11))
        seq = int(random.choice((2048, 4096, 8192)))
        job = Job(
            graph=build_graph(load_model(model)), cluster=found, stack=constants.stack(stack),
            efficiency=constants.efficiency(found.device), seq=seq, global_batch=batch,
        )  # fmt: skip
        space = Space(
            graph=job.graph,
            devices=found.count,
            seq=seq,
            global_batch=batch,
            fixed={"overlap": (0, 1)} | ({"order": OUTERMOST} if sites else {}),
            most={},
        )
        every = legal_strategies(space)
        if not len(every):
            continue
        few = every.take(random.choice(len(every), size=min(len(every), 3000), replace=False))
        fits = np.flatnonzero(estimate(job, few, detail=False).feasible)
        for index in random.choice(fits, size=min(3, len(fits)), replace=False) if len(fits) else ():
            strategy = few[int(index)]
            tasks = 30 * 100 * batch / (strategy.dp * strategy.micro_batch)
            if tasks < MOST_TASKS and made < count:
                made += 1
                yield Draw(
                    name=f"{model} {found.name} {stack} seq{seq} gb{batch}", job=job, strategy=strategy
                )


def ratio(draw: Draw) -> float:
    """Simulated over estimated step time."""
    job, stack = draw.job, draw.job.stack
    plan = expand(
        draw.strategy, job.graph, int(job.global_batch),
        balanced=stack.balanced_stages,
    )  # fmt: skip
    setting = Setting(
        graph=job.graph, cluster=job.cluster, stack=stack, efficiency=job.efficiency, seq=job.seq,
        precision=plan.precision,
    )  # fmt: skip
    simulated = simulate(tabulate(lower(setting, plan))).step_s
    return simulated / float(estimate(job, stack_strategies([draw.strategy]), detail=False).step_s[0])


KINDS: Mapping[str, Callable[[Strategy], bool]] = {
    "all": lambda s: True,
    "nothing offloaded": lambda s: s.offload == "none",
    "ZeRO 0 to 2": lambda s: s.zero < 3,
    "ZeRO 3 without a pipeline": lambda s: s.zero == 3 and s.pp == 1,
    "ZeRO 3 in a pipeline": lambda s: s.zero == 3 and s.pp > 1,
    "ZeRO 0 to 2, nothing offloaded": lambda s: s.zero < 3 and s.offload == "none",
    "gpipe, 1f1b": lambda s: s.pp > 1 and s.schedule in ("gpipe", "1f1b"),
    "interleaved": lambda s: s.schedule == "interleaved",
    "zero-bubble": lambda s: s.schedule == "zb",
}


Compared = tuple[list[tuple[float, Draw]], list[str]]  # ratios, and what could not be compared


def compare(part: tuple[int, int, bool]) -> Compared:
    """Both answers to so many draws of a seed."""
    found: list[tuple[float, Draw]] = []
    failed: list[str] = []
    for draw in draws(*part):
        try:
            found.append((ratio(draw), draw))
        except TrainwrightError as error:
            failed.append(f"{draw.name}  {draw.strategy}: {error}")
    return found, failed


def main(count: int, seed: int, sites: bool = False) -> None:
    """Print how the two agree."""
    found: list[tuple[float, Draw]] = []
    failed: list[str] = []
    parts = [(min(50, count - at), 1000 * seed + at // 50, sites) for at in range(0, count, 50)]
    with suppress(KeyboardInterrupt), multiprocessing.Pool() as pool:  # interrupted, it tells of what it has
        for ratios, errors in pool.imap_unordered(compare, parts):
            found += ratios
            failed += errors
            print(f"{len(found) + len(failed)} of {count}", file=sys.stderr, flush=True)
    print(
        "| strategies | draws | median | 90 % within | 99 % within | worst | within 3 % |\n"
        + "|---" * 7
        + "|"
    )
    for kind, belongs in KINDS.items():
        off = np.array([abs(value - 1.0) for value, draw in found if belongs(draw.strategy)])
        if len(off):
            marks = (
                np.median(off),
                np.quantile(off, 0.9),
                np.quantile(off, 0.99),
                off.max(),
                (off <= 0.03).mean(),
            )
            print(f"| {kind} | {len(off)} | " + " | ".join(f"{mark:.1%}" for mark in marks) + " |")
    print(f"\n{len(failed)} could not be compared", *failed[:5], sep="\n")
    print("\nThe worst (simulated over estimated):\n")
    for value, draw in sorted(found, key=lambda each: -abs(each[0] - 1.0))[:15]:
        print(f"- {value:.3f}: {draw.name}, `{draw.strategy}`")


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "sites"]
    main(*(int(word) for word in (words + ["2000", "1"][len(words) :])), sites="sites" in sys.argv)
