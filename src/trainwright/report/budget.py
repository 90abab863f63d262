"""What a run of predicted steps takes: days, device-hours, money, energy, carbon."""

from dataclasses import dataclass
from math import inf
from typing import Protocol

from trainwright.cluster.types import Cluster
from trainwright.cost.constants import Stack
from trainwright.cost.load import Interval
from trainwright.cost.memory_risk import UNKNOWN_SPREAD, MemorySpread
from trainwright.cost.state import state_widths
from trainwright.economics.batch import batch_charge
from trainwright.economics.goodput import DAY_S, Goodput, Reliability, Run, goodput
from trainwright.economics.money import GRID_KG_PER_KWH
from trainwright.model.graph import Graph, parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a run takes on the whole cluster, interruptions included.

    `least_tokens` would do at a small batch, `tokens` are trained on; `steady_days` would pass without
    interruptions.
    """

    tokens: float
    least_tokens: float
    days: float
    steady_days: float
    device_hours: float
    dollars: float
    dollars_per_million_tokens: float
    kwh: float
    co2e_kg: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What turns times into ranges and money: the interval of a prediction, tokens, prices, interruptions.

    A batch is charged with more tokens only if a critical batch is given, in tokens.
    """

    interval: Interval
    tokens: float
    dollars_per_device_hour: float
    dollars_per_kwh: float = 0.0  # on top: zero where the price of an hour includes electricity
    grid_kg_per_kwh: float = GRID_KG_PER_KWH
    reliability: Reliability | None = None
    critical_batch_tokens: float = inf
    memory_spread: MemorySpread = UNKNOWN_SPREAD  # how measured memory compares with predicted


class Trained(Protocol):
    """What a checkpoint's size and the number of failures follow from: a `Job`, a `Setting`."""

    @property
    def graph(self) -> Graph:
        """The model."""

    @property
    def cluster(self) -> Cluster:
        """Where it is trained."""

    @property
    def stack(self) -> Stack:
        """With which software."""


def goodput_of(job: Trained, precision: str, step_s: float, terms: Terms) -> Goodput | None:
    """How interruptions bear on a run of such steps; a checkpoint holds weights and optimizer state."""
    if terms.reliability is None:
        return None
    widths = state_widths(job.stack, job.cluster.device.family, precision)
    run = Run(
        devices=job.cluster.count,
        nodes=-(-job.cluster.count // job.cluster.node_size),
        step_s=step_s,
        state_bytes=(widths.weight + widths.optimizer) * parameters(job.graph),
    )
    return goodput(run, terms.reliability)


def budget_of(
    batch_tokens: int, rates: tuple[float, float], power: float, devices: int, terms: Terms
) -> Budget:
    """Of a run at a steady and an effective rate of tokens; the time that is lost draws the same power."""
    tokens = terms.tokens * batch_charge(batch_tokens, terms.critical_batch_tokens)
    steady_s, seconds = (tokens / rate if rate else inf for rate in rates)
    hours, kwh = seconds / 3600.0 * devices, seconds * power / 3.6e6
    dollars = hours * terms.dollars_per_device_hour + kwh * terms.dollars_per_kwh
    return Budget(
        tokens=tokens,
        least_tokens=terms.tokens,
        days=seconds / DAY_S,
        steady_days=steady_s / DAY_S,
        device_hours=hours,
        dollars=dollars,
        dollars_per_million_tokens=dollars / tokens * 1e6,
        kwh=kwh,
        co2e_kg=kwh * terms.grid_kg_per_kwh,
    )
