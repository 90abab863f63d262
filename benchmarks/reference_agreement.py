"""Whether the closed form agrees with its scalar reference, on random legal strategies.

    python benchmarks/reference_agreement.py [--count N] [--seed S] [--only TEXT]

Every question is a model on a cluster with a stack. Of each, strategies are drawn evenly over schedules and
ZeRO stages; recomputation (sets of modules, all layers or some), offload, precision, overlap and rank order
are drawn at random. Step time, busy time, memory by part and bytes on the host must agree to 1e-9, or the
exit code is 1.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from scalar_reference.reference import ReferenceEstimate, check_job, reference_estimate
from trainwright.cluster.load import load_cluster
from trainwright.cost.chosen_optimizer import with_optimizer
from trainwright.cost.load import load_constants
from trainwright.estimate.step import estimate
from trainwright.estimate.types import MEMORY, Job
from trainwright.model.build import build_graph
from trainwright.model.load import load_model
from trainwright.plan.recompute_modules import NAMES, SELECTIVE, recompute_modules
from trainwright.plan.strategy import (
    ACTIVATION_OFFLOADS,
    OFFLOADS,
    ORDERS,
    PRECISIONS,
    SCHEDULES,
    Strategies,
    Strategy,
    stack_strategies,
)
from trainwright.search.space import Space, layers_per_stage, legal_strategies

TOLERANCE = 1e-9
MOST = {"vpp": 16, "micro_batch": 8}
UNFUSED = "megatron-lm, unfused attention"
MODULE_SETS = 12  # that are drawn for each question: the closed form has a row of every table for each


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What strategies are drawn for; the optimizer and the gradients' dtype are the stack's unless stated."""

    model: str
    cluster: str
    stack: str
    seq: int
    global_batch: int
    optimizer: str = ""
    grad_dtype: str = ""
    expert_imbalance: float = 0.0  # 0: the stack's own

    def __str__(self) -> str:
        imbalance = f"imbalance {self.expert_imbalance:g}" if self.expert_imbalance else ""
        gradients = self.grad_dtype and f"{self.grad_dtype} gradients"
        stated = " ".join(filter(None, (self.optimizer, gradients, imbalance)))
        return f"{self.model} on {self.cluster} with {self.stack}{stated and ', '}{stated}"


def _question(model: str, cluster: str, stack: str, seq: int, global_batch: int, *state: str) -> Question:
    optimizer, grad_dtype = (*state, "", "")[:2]
    return Question(
        model=model, cluster=cluster, stack=stack, seq=seq, global_batch=global_batch, optimizer=optimizer,
        grad_dtype=grad_dtype,
    )  # fmt: skip


# Layers that divide, that do with both ends, and that do not; tied ends; experts, latent attention, windows,
# encoders, recycling; two and three levels, switches that reduce, full meshes, rings, tori. Stacks that keep
# ends gathered, gradients whole, or all state of a pipeline whole, that have buckets, or weights of 8 and 4
# bits; hosts whose memory is stated and not.
QUESTIONS = (
    _question("gpt3-175b", "a100:96", "megatron-core", 2048, 192),
    _question("llama3-405b", "gb200:144", "megatron-core", 8192, 144, "precision-aware-fp8", "bf16"),
    _question("llama3-8b", "h100:64", "torchtitan", 8192, 128),
    _question("llama2-13b", "h100:512", "nanotron", 4096, 1024),  # 64 nodes: stalls of pipelines count
    _question("qwen3-4b", "a100:60", "nanotron", 4096, 120, "", "fp32"),
    _question("gpt2-xl", "mi300x:24", "deepspeed", 1024, 96, "adamw-8bit"),
    _question("gemma-2-9b", "tpu-v4:64", "maxtext", 4096, 128),
    replace(_question("mixtral-8x7b", "h100:64", "megatron-core", 4096, 128), expert_imbalance=1.5),
    _question("gpt-oss-20b", "gh200:24", "torchtitan", 4096, 96, "muon"),
    _question("qwen3-30b-a3b", "tpu-v5e:64", "maxtext", 4096, 64),
    _question("deepseek-v2-lite", "a100:32", "deepspeed", 4096, 96),
    _question("deepseek-v3", "h800:128", "megatron-core", 4096, 256, "muon", "bf16"),
    _question("llama-7b", "v100-32gb:32", UNFUSED, 1024, 64),
    _question("gemma-2-9b", "h100:32", "nemo", 4096, 64, "precision-aware-bf16"),
    _question("llama2-7b", "h200:16", "accelerate", 4096, 64, "adafactor"),
    _question("t5-3b", "h100:24@aws-p5", "generic", 512, 96),
    _question("alphafold2-87m", "a100:16", "generic", 256, 128),
    _question("swinv2-giant", "mi250x:32", "generic", 1024, 64),
)


def kinds(s: Strategy) -> list[str]:
    """What a strategy has of what should be among those drawn."""
    known = {
        f"{s.schedule} schedule": s.pp > 1,
        f"ZeRO-{s.zero}": True,
        "HSDP": s.zero == 3 and 0 < s.shard < s.dp * s.cp,
        f"cp {s.cp_kind}": s.cp > 1,
        "sp": s.sp,
        "ep": s.ep > 1,
        "etp": s.etp > 1,
        "full recomputation": s.recompute == "full",
        "selective recomputation": s.recompute == SELECTIVE,
        **{f"recomputed {name}": True for name in recompute_modules(s.recompute)},
        "full recomputation of some layers": s.recompute_layers > 0,
        f"offload {s.offload}": s.offload != "none",
        "activations of some layers offloaded": s.offload_layers > 0,
        s.precision: True,
        "no overlap": not s.overlap,
        "other rank order": s.order != ORDERS[0],
    }
    return [kind for kind, holds in known.items() if holds]


def build_job(question: Question) -> Job:
    """The job of a question."""
    constants, cluster = load_constants(), load_cluster(question.cluster)
    if question.stack == UNFUSED:
        stack = replace(constants.stack("megatron-lm"), attention="unfused")
    else:
        stack = constants.stack(question.stack)
    stack = with_optimizer(stack, question.optimizer, question.grad_dtype)
    stack = replace(stack, stated_imbalance=question.expert_imbalance)
    return Job(
        graph=build_graph(load_model(question.model)), cluster=cluster, stack=stack,
        efficiency=constants.efficiency(cluster.device), seq=question.seq, global_batch=question.global_batch,
    )  # fmt: skip


def legal_degrees(job: Job) -> Strategies:
    """All legal degrees, schedules and ZeRO stages, whether the stack has them or not."""
    space = Space(
        graph=job.graph, devices=job.cluster.count, seq=job.seq, global_batch=int(job.global_batch),
        fixed={"recompute": (0,), "offload": (0,)}, most=MOST,
    )  # fmt: skip
    legal = legal_strategies(space)
    plain, one_by_one = SCHEDULES.index("gpipe"), SCHEDULES.index("1f1b")
    allowed = np.full(len(legal), True)
    if job.graph.passes > 1:  # there is one schedule for recycled passes
        allowed &= legal.schedule == one_by_one
    if job.stack.balanced_stages:  # the closed form of stages cut by work is of schedules without chunks
        allowed &= np.isin(legal.schedule, (plain, one_by_one))
    return legal.take(allowed)


def draw_strategies(job: Job, count: int, random: np.random.Generator) -> Iterator[Strategy]:
    """Legal strategies, evenly over pairs of schedule and ZeRO stage."""
    legal = legal_degrees(job)
    pairs = np.where(legal.pp > 1, legal.schedule, len(SCHEDULES)) * 4 + legal.zero
    places = [np.flatnonzero(pairs == pair) for pair in np.unique(pairs)]
    sets = [SELECTIVE, *("+".join(random.choice(NAMES, size, replace=False)) for size in _sizes(random))]
    for at in range(count):
        chosen = legal[int(random.choice(places[at % len(places)]))]
        recompute = str(random.choice(("none", "full", str(random.choice(sets)), str(random.choice(sets)))))
        some = recompute == "full" and random.random() < 0.5
        most = layers_per_stage(job.graph, chosen.pp)
        offload = str(random.choice(OFFLOADS))
        counted = offload in ACTIVATION_OFFLOADS and random.random() < 0.5
        yield replace(
            chosen,
            recompute=recompute,
            recompute_layers=int(random.integers(1, most + 1)) if some else 0,
            offload=offload,
            offload_layers=int(random.integers(1, most + 1)) if counted else 0,
            precision=str(random.choice(PRECISIONS)),
            overlap=bool(random.random() < 0.7),
            order=str(random.choice(ORDERS)) if random.random() < 0.4 else chosen.order,
        )


def _sizes(random: np.random.Generator) -> list[int]:
    """How many modules each of the other sets has: mostly few."""
    return [int(random.choice((1, 2, 3, 4, 8))) for _ in range(MODULE_SETS - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How far apart the two are on one strategy, as a share of the reference."""

    question: Question
    strategy: Strategy
    quantity: str
    closed: float
    reference: float
    relative: float


def compare(question: Question, count: int, random: np.random.Generator) -> list[Difference]:
    """The differences on `count` strategies, by quantity."""
    job = build_job(question)
    check_job(job)
    strategies = list(draw_strategies(job, count, random))
    closed = estimate(job, stack_strategies(strategies), detail=False)
    found = []
    for at, strategy in enumerate(strategies):
        answer = reference_estimate(job, strategy)
        ours = {
            "step": float(closed.step_s[at]),
            "busy": float(closed.busy_s[at]),
            "memory": float(closed.total_bytes[at]),
            "host memory": float(closed.host_bytes[at]),
            **{name: float(np.broadcast_to(closed.memory_bytes[name], len(closed))[at]) for name in MEMORY},
        }
        for quantity, reference, whole in _quantities(answer):
            relative = abs(ours[quantity] - reference) / max(whole, 1e-12)
            found.append(
                Difference(
                    question=question, strategy=strategy, quantity=quantity, closed=ours[quantity],
                    reference=reference, relative=relative,
                )
            )  # fmt: skip
    return found


def _quantities(answer: ReferenceEstimate) -> Iterator[tuple[str, float, float]]:
    """What is compared, and what a difference is a share of: for a part of memory, all of it."""
    total = answer.memory.total
    yield "step", answer.step_s, answer.step_s
    yield "busy", answer.busy_s, answer.busy_s
    yield "memory", total, total
    yield "host memory", answer.host_bytes, answer.host_bytes
    for name in MEMORY:
        yield name, getattr(answer.memory, name), total


def render_kinds(strategies: Sequence[Strategy]) -> str:
    """How many strategies are of each kind."""
    counts = Counter(kind for strategy in strategies for kind in kinds(strategy))
    return "\n".join(f"{kind:<36} {counts[kind]:>6}" for kind in sorted(counts))


def main() -> int:
    """Print how far apart the two are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=6_400, help="strategies, over all questions")
    parser.add_argument("--seed", type=int, default=0, help="of the draws")
    parser.add_argument("--only", default="", help="questions whose text has this")
    options = parser.parse_args()
    questions = [each for each in QUESTIONS if options.only in str(each)]
    found: list[Difference] = []
    for at, question in enumerate(questions):
        random = np.random.default_rng([options.seed, at])
        found += compare(question, -(-options.count // len(questions)), random)
    strategies = [each.strategy for each in found if each.quantity == "step"]
    print(f"{len(strategies):,} strategies of {len(questions)} questions\n")
    print(render_kinds(strategies) + "\n")
    print("largest difference, closed form from reference:")
    for quantity in dict.fromkeys(each.quantity for each in found):
        worst = max((each for each in found if each.quantity == quantity), key=lambda each: each.relative)
        where = f"  {worst.question}, `{worst.strategy}`" if worst.relative else ""
        print(f"{quantity:<12} {worst.relative:.1e}{where}")
    apart = [each for each in found if not each.relative <= TOLERANCE]
    if apart:
        differing = {(str(each.question), str(each.strategy)) for each in apart}
        print(f"{len(differing):,} strategies differ by more than {TOLERANCE:.0e}", file=sys.stderr)
        for each in sorted(apart, key=lambda each: -each.relative)[:10]:
            print(
                f"{each.relative:.2e} {each.quantity}: closed form {each.closed:.9g}, reference "
                f"{each.reference:.9g}: {each.question}, `{each.strategy}`",
                file=sys.stderr,
            )
    return 1 if apart else 0


if __name__ == "__main__":
    sys.exit(main())
