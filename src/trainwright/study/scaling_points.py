"""The fastest plan of each kind that fits, at one scale."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from trainwright.cluster.load import load_cluster
from trainwright.cluster.types import Cluster
from trainwright.cost.load import Interval
from trainwright.cost.source import Source
from trainwright.errors import BadInput
from trainwright.estimate.step import estimate
from trainwright.estimate.types import COMMUNICATION, Job
from trainwright.model.graph import Graph
from trainwright.plan.strategy import (
    OFFLOADS,
    PRECISIONS,
    SCHEDULES,
    Strategies,
    join_strategies,
    stack_strategies,
)
from trainwright.report.summary import Summary, Terms, summarize
from trainwright.search.recompute_choices import recompute_choices
from trainwright.search.space import Space, legal_strategies

Flags = NDArray[np.bool_]
DEGREES = (2, 4, 8, 16)  # of model parallelism
_PLAIN, _INTERLEAVED = SCHEDULES.index("1f1b"), SCHEDULES.index("interleaved")
_TOKENS = 1e12  # that a summary prices; not used here


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What stays the same while devices are added; `device` is as `load_some` reads it."""

    graph: Graph
    device: str
    source: Source
    seq: int

    def cluster(self, count: int) -> Cluster:
        """So many of the devices."""
        return load_some(self.device, count)


def load_some(device: str, count: int) -> Cluster:
    """So many of a device, which may name its network (`h100@aws-p5`) or be a cluster file's."""
    if device.endswith(".toml"):
        return replace(load_cluster(device), count=count)
    name, at, network = device.partition("@")
    return load_cluster(f"{name}:{count}{at}{network}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Plans that are alike in all that is compared; what else may vary is chosen by time and memory."""

    name: str
    tp: tuple[int, ...] = (1,)
    pp: tuple[int, ...] = (1,)
    groups: bool = False  # weights are sharded inside nodes and replicated between them (HSDP)
    interleaved: bool = False
    degree: int = 1  # of model parallelism; 0: several

    def among(self, strategies: Strategies, node: int) -> Flags:
        """Which strategies are of the kind.

        Without a pipeline weights are sharded (ZeRO-3). With one only the optimizer's state need be, as each
        microbatch would gather the weights again.
        """
        held = np.isin(strategies.tp, self.tp) & np.isin(strategies.pp, self.pp)
        sharded = (strategies.pp > 1) | (strategies.zero == 3) | (strategies.dp == 1)
        grouped = strategies.shard == (node if self.groups else 0)
        plain = self.interleaved | (strategies.schedule == _PLAIN)
        return np.asarray(held & sharded & grouped & plain)


FSDP = Kind(name="fsdp")
HSDP = Kind(name="hsdp", groups=True)
TENSOR = tuple(Kind(name=f"tp{each}", tp=(each,), degree=each) for each in DEGREES)
PIPELINE = tuple(Kind(name=f"pp{each}", pp=(each,), degree=each) for each in DEGREES)
INTERLEAVED = Kind(name="pp interleaved", pp=DEGREES, interleaved=True, degree=0)
ANY = Kind(name="tp x pp", tp=(1, *DEGREES), pp=(1, *DEGREES), interleaved=True, degree=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One plan at one scale; its communication and the exposed part are seconds of a step, busiest stage."""

    devices: int
    strategy: str
    degree: int  # tp times pp
    global_batch: int
    seq: int
    step_s: float
    tokens_per_s: float
    tokens_per_s_per_device: float
    mfu: float
    device_w: float
    power_w: float  # of the cluster, at the meter
    dollars_per_hour: float
    communication_s: float
    exposed_s: float

    @property
    def tokens_per_joule(self) -> float:
        """Of the devices' energy, without hosts and cooling."""
        return self.tokens_per_s_per_device / self.device_w

    @property
    def tokens_per_dollar(self) -> float:
        """At the catalog's price of a device-hour."""
        return 3600.0 * self.tokens_per_s / self.dollars_per_hour if self.dollars_per_hour else inf

    @property
    def communication_share(self) -> float:
        """All communication, hidden or not, over the step."""
        return self.communication_s / self.step_s

    @property
    def exposed_share(self) -> float:
        """Exposed communication, of the step."""
        return self.exposed_s / self.step_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Sequences a step, and the kinds of plans that are asked for."""

    size: int
    kinds: Sequence[Kind]


def best_points(setting: Setting, count: int, batches: Sequence[Batch]) -> list[list[Point | None]]:
    """For each batch the fastest plan of each kind that fits; None where none does.

    All strategies of all batches are one call of `estimate`, all winners one of `summarize`.
    """
    job = _job(setting, count)
    spaces = [_strategies(job, batch) for batch in batches]
    strategies = join_strategies(spaces)
    which = np.repeat(np.arange(len(batches)), [len(each) for each in spaces])
    sizes = np.array([batch.size for batch in batches])[which]
    result = estimate(replace(job, global_batch=sizes), strategies, detail=False)
    step_s = np.where(result.feasible, result.step_s, np.inf)
    node = job.cluster.node_size
    found = [
        [_fastest(step_s, (which == index) & kind.among(strategies, node)) for kind in batch.kinds]
        for index, batch in enumerate(batches)
    ]
    winners = sorted({each for row in found for each in row if each is not None})
    at = np.array(winners, np.int64)
    chosen = replace(job, global_batch=sizes[at])
    points = dict(zip(winners, _points(chosen, strategies.take(at), setting.source.interval), strict=True))
    return [[None if each is None else points[each] for each in row] for row in found]


def _job(setting: Setting, count: int) -> Job:
    cluster = setting.cluster(count)
    return Job(
        graph=setting.graph, cluster=cluster, stack=setting.source.stack,
        efficiency=setting.source.efficiency, seq=setting.seq, global_batch=1,
    )  # fmt: skip


def _strategies(job: Job, batch: Batch) -> Strategies:
    """What the kinds of a batch choose from; none if nothing is legal."""
    cluster = job.cluster
    precision = cluster.device.usual_precision
    schedules = [_PLAIN, *([_INTERLEAVED] if any(each.interleaved for each in batch.kinds) else [])]
    fixed: dict[str, tuple[int, ...]] = {
        "tp": _every(each.tp for each in batch.kinds), "pp": _every(each.pp for each in batch.kinds),
        "cp": (1,), "ep": (1,), "zero": (1, 3), "schedule": tuple(schedules),
        "offload": (OFFLOADS.index("none"),), "precision": (PRECISIONS.index(precision),),
        "shard": _every((cluster.node_size,) if each.groups else (0,) for each in batch.kinds),
    }  # fmt: skip
    space = Space(
        graph=job.graph, devices=cluster.count, seq=job.seq, global_batch=batch.size,
        fixed=fixed, most={"vpp": 16}, recomputes=recompute_choices(job.graph, job.stack),
    )  # fmt: skip
    try:
        return legal_strategies(space)
    except BadInput:  # no degrees divide the devices, the batch and the model
        return stack_strategies([])


def _every(parts: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sorted({each for part in parts for each in part}))


def _fastest(step_s: NDArray[np.float64], among: Flags) -> int | None:
    """The first of the fastest among some; None if none fits."""
    time_s = np.where(among, step_s, np.inf)
    return int(time_s.argmin()) if np.isfinite(time_s).any() else None


def _points(job: Job, winners: Strategies, interval: Interval) -> list[Point]:
    if not len(winners):
        return []
    price = job.cluster.device.price_per_hour
    terms = Terms(interval=interval, tokens=_TOKENS, dollars_per_device_hour=price)
    return [_point(each, price) for each in summarize(job, winners, terms)]


def _point(summary: Summary, price: float) -> Point:
    strategy = summary.strategy
    return Point(
        devices=summary.devices, strategy=str(strategy), degree=strategy.tp * strategy.pp,
        global_batch=summary.global_batch, seq=summary.seq, step_s=summary.step_s,
        tokens_per_s=summary.tokens_per_s, tokens_per_s_per_device=summary.tokens_per_s_per_device,
        mfu=summary.mfu, device_w=summary.device_w, power_w=summary.power_w,
        dollars_per_hour=price * summary.devices,
        communication_s=sum(summary.communication_s.values()),
        exposed_s=sum(summary.time_s[name] for name in COMMUNICATION),
    )  # fmt: skip
