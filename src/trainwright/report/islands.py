"""What people ask of islands: speed, bytes on slow links, memory, money, and the risk to the loss."""

from dataclasses import dataclass
from math import log

from trainwright.algorithm.exact import Exact
from trainwright.algorithm.meeting import round_steps
from trainwright.algorithm.message import sent_bytes
from trainwright.algorithm.protocol import Seat
from trainwright.algorithm.registry import parse_algorithm, render_algorithm, short_name
from trainwright.algorithm.risk import Risk, risks_like
from trainwright.cluster.power import Activity, power_w
from trainwright.economics.goodput import Goodput
from trainwright.estimate.rounds import Option
from trainwright.estimate.types import Job
from trainwright.plan.expand import expand
from trainwright.plan.islands import set_apart
from trainwright.plan.plan import Plan
from trainwright.plan.strategy import Strategy, stack_strategies
from trainwright.plan.text import render_plan
from trainwright.program.meetings import round_sent_bytes
from trainwright.report.budget import Budget, Terms, budget_of, goodput_of
from trainwright.report.summary import Summary, summarize

_WAITING = Activity(matrix=0.0, memory=0.0, link=1.0)  # what devices do while islands meet


@dataclass(frozen=True, slots=True, kw_only=True)
class ApartSummary:
    """One algorithm's prediction, for all islands together.

    `step_s` is the mean over a round, or over the run if it has exact steps too; `island_step_s` the step of
    an island, `sync_s` what meetings add to the mean one. `mfu` counts what islands compute: of a slice, the
    slice. `sent_bytes_per_step` is what an island sends over the links between islands, on average over the
    same steps; `round_sent_bytes` in a round.
    `risks` are what the study measured of the algorithm, on small networks.
    """

    name: str
    algorithm: str  # with its hyperparameters
    islands: int
    devices: int
    island_devices: int
    every: int
    strategy: Strategy  # of one island
    global_batch: int
    seq: int
    step_s: float
    low_s: float
    high_s: float
    island_step_s: float
    round_s: float
    sync_s: float
    link_s: float  # of a round, on the links between islands
    exact_steps: int
    tokens_per_s: float
    tokens_per_s_per_device: float
    mfu: float
    hfu: float
    round_sent_bytes: float
    sent_bytes_per_step: float
    total_bytes: float
    beside_bytes: float
    capacity_bytes: float
    power_w: float
    device_w: float
    joules_per_token: float
    tokens_per_joule: float
    goodput: Goodput | None
    effective_tokens_per_s: float
    budget: Budget
    risks: tuple[Risk, ...]
    plan: str  # as text, which `trainwright simulate` reads


def summarize_apart(
    option: Option, whole: Job, terms: Terms, exact: Summary | None = None, exact_bytes: float | None = None
) -> ApartSummary:
    """A summary of an option; `exact` is how its run trains in the exact steps that it may have.

    `exact_bytes` is what an island sends in such a step; if it is not known, all gradients once.
    """
    apart, job = option.apart, option.job
    (island,) = summarize(job, stack_strategies([option.strategy]), terms)
    batch, cluster = int(job.global_batch) * apart.islands, whole.cluster
    steps = terms.tokens / (batch * job.seq)
    share = option.exact_share(steps)
    step_s = option.mean_s(steps, exact.step_s if exact else None)
    counted = share if exact else 0.0
    whole_step, waiting = exact or island, float(power_w(cluster, _WAITING))
    blend = _Blend(
        step_s=step_s, island_s=(1.0 - counted) * island.step_s, exact_s=counted * whole_step.step_s
    )
    power = blend.mean(apart.islands * island.power_w, whole_step.power_w, waiting)
    tokens_per_s = batch * job.seq / step_s
    interrupted = goodput_of(whole, option.strategy.precision, step_s, terms)
    effective = tokens_per_s * (interrupted.speed if interrupted else 1.0)
    text = render_algorithm(apart.algorithm)
    sent = round_sent_bytes(option.meetings, apart.islands)
    waiting_w = waiting / cluster.count / cluster.pue - cluster.network.host_w
    return ApartSummary(
        name=short_name(apart.algorithm),
        algorithm=text,
        islands=apart.islands,
        devices=cluster.count,
        island_devices=job.cluster.count,
        every=apart.every,
        strategy=option.strategy,
        global_batch=batch,
        seq=job.seq,
        step_s=step_s,
        low_s=step_s * terms.interval.low,
        high_s=step_s * terms.interval.high,
        island_step_s=option.island_step_s,
        round_s=option.round_s,
        sync_s=option.step_s - option.island_step_s,
        link_s=sum(each.link_s for each in option.meetings),
        exact_steps=apart.exact_steps,
        tokens_per_s=tokens_per_s,
        tokens_per_s_per_device=tokens_per_s / cluster.count,
        mfu=blend.mean(island.mfu, whole_step.mfu),
        hfu=blend.mean(island.hfu, whole_step.hfu),
        round_sent_bytes=sent,
        sent_bytes_per_step=(1.0 - share) * sent / apart.every + share * _exact_bytes(option, exact_bytes),
        total_bytes=island.total_bytes + (1.0 + job.stack.reserve_share) * option.beside_bytes,
        beside_bytes=option.beside_bytes,
        capacity_bytes=island.capacity_bytes,
        power_w=power,
        device_w=blend.mean(island.device_w, whole_step.device_w, waiting_w),
        joules_per_token=power / tokens_per_s,
        tokens_per_joule=tokens_per_s / power,
        goodput=interrupted,
        effective_tokens_per_s=effective,
        budget=budget_of(batch * job.seq, (tokens_per_s, effective), power, cluster.count, terms),
        risks=risks_like(text),
        plan=render_plan(plan_of(option)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Blend:
    """Of a mean step, the time in which islands work, that of exact steps, and what is waited beside them."""

    step_s: float
    island_s: float
    exact_s: float

    def mean(self, island: float, exact: float, waiting: float = 0.0) -> float:
        """A number in the mean over all time, from what it is in each."""
        waited_s = self.step_s - self.island_s - self.exact_s
        return (self.island_s * island + self.exact_s * exact + waited_s * waiting) / self.step_s


def _exact_bytes(option: Option, known: float | None) -> float:
    """What an island sends in an exact step."""
    if known is not None:
        return known
    seat = Seat(rank=0, workers=option.apart.islands, steps=1)
    messages = Exact().messages(option.apart.anatomy, seat, 0)
    return sum(sent_bytes(each, option.apart.islands) for each in messages)


def plan_of(option: Option) -> Plan:
    """The option as a plan that can be simulated, written down and read back."""
    job, stack = option.job, option.job.stack
    inner = expand(
        option.strategy, job.graph, int(job.global_batch),
        balanced=stack.balanced_stages,
    )  # fmt: skip
    return set_apart(inner, option.apart.algorithm, option.apart.islands)


def nearest_risk(risks: tuple[Risk, ...], islands: int, every: int) -> Risk | None:
    """The measured risk that says most about a language model on so many islands; nothing if there is none.

    Of transformers before others; then of the nearest count of workers; then of the nearest rounds.
    """
    return min(risks, key=lambda each: _distance(each, islands, every), default=None)


def _distance(risk: Risk, islands: int, every: int) -> tuple[bool, int, float]:
    return (
        risk.network != "transformer", abs(risk.workers - islands), abs(log(max(every_of(risk), 1) / every))
    )  # fmt: skip


def every_of(risk: Risk) -> int:
    """Steps of a round in the setting that was measured; 0 if that is not stated."""
    return round_steps(parse_algorithm(risk.setting)) if risk.setting else 0
