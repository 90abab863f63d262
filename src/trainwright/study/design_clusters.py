"""Whole clusters side by side on one model: time, and what a device, a dollar and a watt give."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainwright.cluster.load import load_cluster
from trainwright.cluster.power import activity_of, power_w
from trainwright.cluster.types import Cluster
from trainwright.cost.constants import TORCHREC
from trainwright.cost.source import ROOFLINE
from trainwright.economics.money import usual_capital
from trainwright.economics.network import network_dollars
from trainwright.estimate.laid import Laid
from trainwright.estimate.step import estimate
from trainwright.estimate.types import Job
from trainwright.model.graph import Graph
from trainwright.plan.strategy import OFFLOADS, PRECISIONS, SCHEDULES, parse_strategy, stack_strategies
from trainwright.search.find import Question, find_plans
from trainwright.search.tables import best_instance, lay_instances
from trainwright.study.mp_dp import best_strategy, build_job, precision

HYPOTHETICAL = Path(__file__).parents[1] / "catalog" / "clusters"
_NARROW_PRODUCTS = ("tpu", "dojo")  # families whose fp32 products are of bf16 parts by default
METHOD, FREE, TABLES = "mp x dp", "any strategy", "tables"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """One cluster on one model under one space of plans; nothing but its price if no plan fits."""

    cluster: str
    model: str
    space: str
    devices: int
    fits: bool
    plan: str = ""
    step_s: float = 0.0
    samples_per_s: float = 0.0
    capital_dollars: float = 0.0
    network_dollars: float = 0.0
    power_w: float = 0.0

    @property
    def dollars(self) -> float:
        """Devices with their servers, and the network."""
        return self.capital_dollars + self.network_dollars

    def row(self, best: "Rival") -> dict[str, object]:
        """What it gives; `relative` is to the fastest of its kind."""
        return {
            "cluster": self.cluster, "model": self.model, "space": self.space, "devices": self.devices,
            "fits": self.fits, "plan": self.plan, "step_s": self.step_s, "samples_per_s": self.samples_per_s,
            "relative": self.samples_per_s / best.samples_per_s,
            "samples_per_s_per_device": self.samples_per_s / self.devices,
            "samples_per_s_per_million_dollars": 1e6 * self.samples_per_s / self.dollars,
            "samples_per_s_per_mw": 1e6 * self.samples_per_s / self.power_w if self.power_w else 0.0,
            "capital_dollars": self.capital_dollars, "network_dollars": self.network_dollars,
            "power_w": self.power_w,
        }  # fmt: skip


def load_rivals(names: Sequence[str], devices: int) -> list[Cluster]:
    """Clusters by name, device or TOML file, each with so many devices; hypothetical ones by their name."""
    own = {path.stem: path for path in sorted(HYPOTHETICAL.glob("*.toml"))}
    found = []
    for name in names:
        if name in own or name.endswith(".toml"):
            cluster = load_cluster(str(own.get(name, name)))
        else:
            device, at, network = name.partition("@")
            cluster = load_cluster(f"{device}:{devices}{at}{network}")
        found.append(replace(cluster, name=Path(name).stem, count=devices))
    return found


def method_rival(graph: Graph, cluster: Cluster, batch: int) -> Rival:
    """A cluster with its best degree of model parallelism."""
    job = build_job(graph, cluster, batch)
    _, best = best_strategy(job)
    return _rival(job, METHOD, str(best) if best else "")


def free_rival(graph: Graph, cluster: Cluster, batch: int) -> Rival:
    """A cluster with its best strategy of any kind, pipelines and sequence parallelism included."""
    job = build_job(graph, cluster, batch)
    fixed = {
        "precision": (PRECISIONS.index(precision(cluster.device)),),
        "schedule": (SCHEDULES.index("1f1b"), SCHEDULES.index("interleaved")),
        "offload": (OFFLOADS.index("none"),),
        "cp": (1,),
    }
    question = Question(job=job, batches=(batch,), fixed=fixed, most={"vpp": 8}, objective="time", top=1)
    found = find_plans(question)
    return _rival(job, FREE, str(found.best.strategies[0]) if len(found.best) else "")


def _rival(job: Job, space: str, plan: str) -> Rival:
    bare = _priced(job.cluster, job.graph.name, space)
    if not plan:
        return bare
    result = estimate(job, stack_strategies([parse_strategy(plan)]))
    step = float(result.step_s[0])
    time, moved = (
        {name: float(values[0]) for name, values in each.items()}
        for each in (result.time_s, result.communication_s)
    )
    return replace(
        bare, fits=True, plan=plan, step_s=step, samples_per_s=int(job.global_batch) / step,
        power_w=float(power_w(job.cluster, activity_of(time, moved, step))),
    )  # fmt: skip


def tables_job(graph: Graph, cluster: Cluster) -> Job:
    """The question of a recommender, on datasheets, in fp32; products at the rate that is usual then."""
    device = cluster.device
    rates = device.peak_flops_per_s
    usual = rates.get("bf16" if device.family in _NARROW_PRODUCTS else "tf32", rates.get("fp32", 0.0))
    if usual:
        device = replace(device, peak_flops_per_s={**rates, "fp32": usual})
    cluster = replace(cluster, device=device)
    stack = replace(TORCHREC, step_s=0.0, op_s=0.0, dp_overlap=1.0, context_bytes=0.0, fragmentation=0.0)
    return Job(graph=graph, cluster=cluster, stack=stack, efficiency=ROOFLINE, seq=1, global_batch=1)


def tables_rival(graph: Graph, cluster: Cluster, samples: int) -> Rival:
    """A cluster full of instances of a recommender, of the size that gives most."""
    job = tables_job(graph, cluster)
    best = best_instance(lay_instances(job, samples, "fp32"))
    bare = _priced(cluster, graph.name, TABLES)
    return bare if best is None else _filled(bare, job, best)


def _filled(bare: Rival, job: Job, best: Laid) -> Rival:
    index, result = int(best.order[0]), best.estimates
    time, moved = (
        {name: float(values[index]) for name, values in each.items()}
        for each in (result.time_s, result.communication_s)
    )
    return replace(
        bare, fits=True, plan=f"{best.instances} x {best.shardings[0]}", step_s=best.step_s,
        samples_per_s=best.samples_per_s,
        power_w=float(power_w(job.cluster, activity_of(time, moved, best.step_s))),
    )  # fmt: skip


def _priced(cluster: Cluster, model: str, space: str) -> Rival:
    return Rival(
        cluster=cluster.name, model=model, space=space, devices=cluster.count, fits=False,
        capital_dollars=cluster.count * usual_capital(cluster.device.price_per_hour),
        network_dollars=network_dollars(cluster),
    )  # fmt: skip


def front(rivals: Sequence[Rival]) -> list[Rival]:
    """Those that no other beats in dollars, watts and time together, cheapest first."""

    def beats(one: Rival, other: Rival) -> bool:
        mine, theirs = ((each.dollars, each.power_w, -each.samples_per_s) for each in (one, other))
        return mine != theirs and all(a <= b for a, b in zip(mine, theirs, strict=True))

    there = [each for each in rivals if each.fits]
    kept = [each for each in there if not any(beats(other, each) for other in there)]
    return sorted(kept, key=lambda each: each.dollars)
