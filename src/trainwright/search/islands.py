"""The best plan of islands for an algorithm: how many, what each does in a step, how rarely they meet."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from trainwright.algorithm.protocol import Algorithm
from trainwright.algorithm.registry import has_rounds
from trainwright.algorithm.risk import EXACT_STEPS, HIDDEN, measured_risks
from trainwright.errors import BadInput, InfeasiblePlan
from trainwright.estimate.rounds import Option
from trainwright.estimate.step import estimate
from trainwright.estimate.types import Job
from trainwright.model.graph import parameters
from trainwright.plan.islands import parse_island_algorithm
from trainwright.plan.strategy import Strategy, stack_strategies
from trainwright.program.meetings import (
    beside_bytes,
    build_apartness,
    build_meetings,
    held_share,
    island_cluster,
    island_counts,
    island_graph,
)
from trainwright.program.setting import Setting
from trainwright.search.check import check_constraints
from trainwright.search.find import Question, find_plans
from trainwright.search.miss import nearest_miss
from trainwright.units import render_bytes

EVERY = (10, 20, 50, 100, 200, 500)  # steps of a round that are tried; DiLoCo was published with 500
_WORTH = 1.05  # times as fast: what more islands, or rarer meetings, must bring


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What islands are chosen for: a run of so many steps, 0 if that is open, and its exact step."""

    steps: float = 0.0
    exact_s: float | None = None


OPEN = Run()


def find_apart(question: Question, text: str, islands: int | None = None, run: Run = OPEN) -> Option:
    """The best option for an algorithm, of as many islands as are asked for or as levels of the network make.

    The fewest islands, and of rounds that are tried the shortest, that another choice beats by 5 % at most:
    the rarer islands meet and the more they are, the more the loss is at risk. Of a run of so many steps, if
    they are given, as large a share is exact as of the measured ones.
    """
    algorithms = list(_algorithms(text, run.steps, question.job.graph.sizes["hidden"]))
    options: list[Option] = []
    error: Exception | None = None
    for count in _counts(question, islands):
        try:
            options.append(_of_count(question, algorithms, count, run))
        except (BadInput, InfeasiblePlan) as found:
            error = error or found
    if not options:
        assert error is not None
        raise error
    return _least(options, run)


def _least(options: list[Option], run: Run) -> Option:
    """The first that no later one beats by what more risk must be worth."""
    means_s = [option.mean_s(run.steps, run.exact_s) for option in options]
    return next(
        option for option, mean_s in zip(options, means_s, strict=True) if mean_s <= _WORTH * min(means_s)
    )


def _algorithms(text: str, steps: float, hidden: int) -> Iterator[Algorithm]:
    """The algorithm as it is stated, other hyperparameters as the study had them; with every round that is
    tried, if that is not stated.
    """
    parse_island_algorithm(text)
    name, *words = text.split()
    stated = dict(word.split("=", 1) for word in words)
    chosen = _measured_setting(text, steps, hidden) | stated
    if not has_rounds(name):
        yield parse_island_algorithm(_written(name, chosen))
        return
    for every in (stated["every"],) if "every" in stated else _rounds_within(steps):
        try:
            yield parse_island_algorithm(_written(name, chosen | {"every": str(every)}))
        except BadInput:  # too short for another hyperparameter
            if every in (_rounds_within(steps)[-1], stated.get("every")):
                raise


def _rounds_within(steps: float) -> tuple[int, ...]:
    """The rounds that are tried in a run of so many steps: none is longer than it, but the shortest."""
    return tuple(each for each in EVERY if not steps or each <= max(steps, EVERY[0]))


def _written(name: str, hyperparameters: Mapping[str, str]) -> str:
    return " ".join([name, *(f"{key}={value}" for key, value in hyperparameters.items())])


def _measured_setting(text: str, steps: float, hidden: int) -> dict[str, str]:
    """The hyperparameters that an algorithm's loss was measured with: then the risk is that of the plan.

    Those of a transformer, if there are any; exact steps as many of so many as there were, if that is known,
    and ranks as large a share of the hidden size.
    """
    known = [each for each in measured_risks(text) if each.setting]
    if not known:
        return {}
    risk = min(known, key=lambda each: each.network != "transformer")
    setting = risk.hyperparameters
    for key in EXACT_STEPS if risk.steps and steps else ():
        if key in setting:
            setting[key] = str(round(int(setting[key]) * steps / risk.steps))
    if "rank" in setting:
        setting["rank"] = str(max(int(setting["rank"]) * hidden // HIDDEN[risk.network], 1))
    return setting


def _counts(question: Question, islands: int | None) -> tuple[int, ...]:
    cluster = question.job.cluster
    if islands == 1:
        rule = "leaves nobody to learn together with"
        raise BadInput("--islands", islands, rule, "state 2 or more, or leave out --algorithm")
    counts = (islands,) if islands else island_counts(cluster)
    if not counts:
        rule = "is one island for --algorithm: no level of its network joins groups of devices"
        remedy = 'state several sites like "h100:64x2@10Gbps", or how many islands with --islands'
        raise BadInput("cluster", cluster.name, rule, remedy)
    return counts


def _of_count(question: Question, algorithms: list[Algorithm], islands: int, run: Run) -> Option:
    """The best option of so many islands."""
    whole = question.job
    (batch,) = question.batches
    if batch % islands:
        rule = f"does not divide over {islands} islands"
        raise BadInput("global batch", batch, rule, f"use a multiple of {islands}, see --batch")
    island = island_cluster(whole.cluster, islands)
    apart = build_apartness(whole.graph, whole.seq, algorithms[0], islands)
    graph = island_graph(whole.graph, apart)
    beside = beside_bytes(apart, parameters(graph), island.count)
    job = replace(whole, graph=graph, cluster=island, global_batch=batch // islands)
    strategy, step_s, weights_bytes = _best_inside(question, job, beside)
    setting = Setting(
        graph=whole.graph, cluster=whole.cluster, stack=whole.stack, efficiency=whole.efficiency,
        seq=whole.seq, precision=strategy.precision,
    )  # fmt: skip
    held = held_share(whole.stack, strategy.precision, weights_bytes, graph, whole.cluster.device.family)
    options = []
    for algorithm in algorithms:
        each = replace(apart, algorithm=algorithm)
        options.append(
            Option(
                apart=each, job=job, strategy=strategy, island_step_s=step_s, beside_bytes=beside,
                meetings=build_meetings(setting, each, held),
            )
        )  # fmt: skip
    return _least(options, run)


def _best_inside(question: Question, job: Job, beside: float) -> tuple[Strategy, float, float]:
    """The best strategy of an island that leaves so much memory free; its step, and bytes of weights."""
    own = job.cluster.device.memory[0]
    room = own.usable_bytes - beside * (1.0 + job.stack.reserve_share) / question.filled_share
    if room <= 0:
        kept, own_text = render_bytes(beside), render_bytes(own.usable_bytes)
        raise InfeasiblePlan(
            f"what the algorithm keeps beside the model is {kept} on each device of an island, and "
            f"{job.cluster.device.name} has {own_text}; use fewer and larger islands, or local-sgd"
        )
    device = replace(
        job.cluster.device,
        memory=(replace(own, capacity_bytes=room, usable_fraction=None), *job.cluster.device.memory[1:]),
    )
    inner = replace(
        question,
        job=replace(job, cluster=replace(job.cluster, device=device)),
        batches=(int(job.global_batch),),
    )
    check_constraints(inner)
    found = find_plans(inner)
    if not len(found.best):
        raise nearest_miss(inner, found)
    strategy = found.best.strategies[0]
    result = estimate(job, stack_strategies([strategy]))
    return strategy, float(result.step_s[0]), float(result.memory_bytes["weights"][0])
