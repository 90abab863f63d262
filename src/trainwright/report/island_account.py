"""A simulated plan of islands in the numbers that people ask for: those of all islands, over a round."""

from dataclasses import dataclass, replace
from math import inf

from trainwright.algorithm.registry import render_algorithm
from trainwright.algorithm.risk import Risk, risks_like
from trainwright.cluster.power import Activity, device_w, power_w
from trainwright.estimate.rounds import round_s
from trainwright.program.meetings import round_sent_bytes
from trainwright.program.traffic import Traffic
from trainwright.report.account import Account, Predicted, Spent, account_of
from trainwright.report.budget import Terms, budget_of, goodput_of
from trainwright.simulate.islands import SimulatedApart
from trainwright.simulate.rounds import SYNC

_WAITING = Activity(matrix=0.0, memory=0.0, link=1.0)  # what devices do while islands meet


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundAccount:
    """How the islands of a plan meet: bytes are what one island passes on, times those of the simulation."""

    algorithm: str
    islands: int
    every: int
    island_step_s: float
    round_s: float
    link_s: float
    round_sent_bytes: float
    sent_bytes_per_step: float
    exact_steps: int  # of the run, which no figure of a round has
    risks: tuple[Risk, ...]


def round_account_of(simulated: SimulatedApart) -> RoundAccount:
    """The round of a simulated plan."""
    apart, text = simulated.apart, render_algorithm(simulated.apart.algorithm)
    sent = round_sent_bytes(simulated.meetings, apart.islands)
    return RoundAccount(
        algorithm=text, islands=apart.islands, every=apart.every, island_step_s=simulated.step.step_s,
        round_s=simulated.round.round_s, link_s=sum(each.link_s for each in simulated.meetings),
        round_sent_bytes=sent, sent_bytes_per_step=sent / apart.every, exact_steps=apart.exact_steps,
        risks=risks_like(text),
    )  # fmt: skip


def account_apart(
    simulated: SimulatedApart, terms: Terms, *, island: Predicted | None = None, free: bool = False
) -> Account:
    """The account of all islands, whose step is the mean of a round; `island` is the closed form's of one.

    Places, memory, collectives and the critical path are those of one island's step; what each cause adds is
    that step's and, as `sync`, what meetings add to the mean one.
    """
    inner = account_of(simulated.step, terms, closed_form=island, free=free)
    islands, setting, step_s = simulated.apart.islands, simulated.setting, simulated.step_s
    working, batch = inner.step_s / step_s, inner.global_batch * islands
    tokens_per_s = batch * setting.seq / step_s
    waiting = float(power_w(setting.cluster, _WAITING)), float(device_w(setting.cluster, _WAITING))
    power = islands * inner.power_w * working + waiting[0] * (1.0 - working)
    interrupted = goodput_of(setting, simulated.plan.precision, step_s, terms)
    effective = tokens_per_s * (interrupted.speed if interrupted else 1.0)
    devices = inner.devices * islands
    return replace(
        inner,
        plan=simulated.plan.name,
        devices=devices,
        global_batch=batch,
        step_s=step_s,
        low_s=step_s * terms.interval.low,
        high_s=step_s * terms.interval.high,
        tokens_per_s=tokens_per_s,
        tokens_per_s_per_device=tokens_per_s / devices,
        mfu=inner.mfu * working,
        hfu=inner.hfu * working,
        power_w=power,
        device_w=inner.device_w * working + waiting[1] * (1.0 - working),
        joules_per_token=power / tokens_per_s,
        tokens_per_joule=tokens_per_s / power if power else inf,
        goodput=interrupted,
        effective_tokens_per_s=effective,
        budget=budget_of(batch * setting.seq, (tokens_per_s, effective), power, devices, terms),
        time_s={**inner.time_s, SYNC: _sync(simulated)},
        traffic=(*inner.traffic, *_told(simulated)),
        closed_form=_closed_form(simulated, island),
    )


def _sync(simulated: SimulatedApart) -> Spent:
    """What meetings add to the mean step, and what of them runs beside steps."""
    every = simulated.apart.every
    adds = max(simulated.step_s - simulated.step.step_s, 0.0)
    whole = sum(each.link_s + each.apply_s for each in simulated.meetings) / every
    hidden = max(whole - adds, 0.0) if whole > (1.0 + 1e-9) * adds else 0.0  # or it is rounding
    return Spent(busiest_s=adds, mean_s=adds, busiest_hidden_s=hidden, mean_hidden_s=hidden)


def _told(simulated: SimulatedApart) -> tuple[Traffic, ...]:
    """What a device tells those of other islands in a round, by the kind of collective."""
    found: dict[str, list[float]] = {}
    for meeting in simulated.meetings:
        for message in meeting.messages:
            found.setdefault(message.kind, []).append(
                round_sent_bytes((replace(meeting, messages=(message,)),), simulated.apart.islands)
            )
    devices = simulated.plan.devices
    return tuple(
        Traffic(kind=kind, cause=SYNC, per="round", count=len(sent), sent_bytes=sum(sent) / devices)
        for kind, sent in found.items()
    )


def _closed_form(simulated: SimulatedApart, island: Predicted | None) -> Predicted | None:
    if island is None:
        return None
    every = simulated.apart.every
    mean_s = round_s(island.step_s, every, simulated.meetings) / every
    return Predicted(step_s=mean_s, total_bytes=island.total_bytes + simulated.reserved_bytes)
