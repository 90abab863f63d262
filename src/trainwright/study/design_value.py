"""What to buy next: how much a tenth more of each resource is worth at one cluster."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from trainwright.cluster.types import Cluster
from trainwright.economics.money import usual_capital
from trainwright.economics.network import network_dollars
from trainwright.model.graph import Graph
from trainwright.search.tables import best_instance, lay_instances
from trainwright.study.design_clusters import tables_job
from trainwright.study.design_maps import faster, with_links
from trainwright.study.mp_dp import best_time, build_job, with_tiers

MORE = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A tenth more of one resource.

    `elasticity` is the share of it that becomes speed: 1 if a tenth more makes a step a tenth faster.
    `dollars` is what it costs, where prices are known: of links by the network's model, of devices by rent.
    """

    resource: str
    faster: float
    elasticity: float
    plan: str  # that is best then
    dollars: float | None

    @property
    def dollars_per_percent(self) -> float | None:
        """What a percent of speed costs this way."""
        return self.dollars / (100.0 * self.faster) if self.dollars and self.faster > 1e-6 else None


def _intra(cluster: Cluster) -> Cluster:
    inner, outer = cluster.network.levels[0], cluster.network.levels[-1]
    return with_links(cluster, MORE * inner.bytes_per_s, outer.bytes_per_s)


def _inter(cluster: Cluster) -> Cluster:
    inner, outer = cluster.network.levels[0], cluster.network.levels[-1]
    return with_links(cluster, inner.bytes_per_s, MORE * outer.bytes_per_s)


def _memory(cluster: Cluster, tier: int, field: str) -> Cluster:
    tiers = [
        replace(each, **{field: MORE * getattr(each, field)}) if index == tier else each
        for index, each in enumerate(cluster.device.memory)
    ]
    return with_tiers(cluster, tuple(tiers))


CHANGES: Mapping[str, Callable[[Cluster], Cluster]] = {
    "compute": lambda cluster: faster(cluster, MORE, 1.0),
    "memory capacity": lambda cluster: _memory(cluster, 0, "capacity_bytes"),
    "memory bandwidth": lambda cluster: _memory(cluster, 0, "bytes_per_s"),
    "expanded capacity": lambda cluster: _memory(cluster, 1, "capacity_bytes"),
    "expanded bandwidth": lambda cluster: _memory(cluster, 1, "bytes_per_s"),
    "intra-pod bandwidth": _intra,
    "inter-pod bandwidth": _inter,
}
_PRICED = ("intra-pod bandwidth", "inter-pod bandwidth")


Speed = Callable[[Cluster, int], tuple[float, str]]  # of a cluster so many times as large: samples/s, plan


def layers_speed(graph: Graph, batch: int) -> Speed:
    """What the best degree of model parallelism gives, with as many times the batch."""

    def speed(cluster: Cluster, times: int) -> tuple[float, str]:
        step_s, mp = best_time(build_job(graph, cluster, times * batch))
        return times * batch / step_s, f"MP{mp}"

    return speed


def tables_speed(graph: Graph, samples: int) -> Speed:
    """What a cluster full of the best instances of a recommender gives."""

    def speed(cluster: Cluster, _: int) -> tuple[float, str]:
        best = best_instance(lay_instances(tables_job(graph, cluster), samples, "fp32"))
        return (best.samples_per_s, f"{best.instances} x {best.devices}") if best else (0.0, "")

    return speed


def buy_next(speed: Speed, cluster: Cluster) -> tuple[Value, ...]:
    """Each resource, the most valuable first; with each the best plan is chosen anew.

    Devices come in doublings, with twice the batch: their elasticity is that of weak scaling.
    """
    base, _ = speed(cluster, 1)
    if not base:
        return ()
    found = []
    for resource, change in CHANGES.items():
        if "expanded" in resource and not cluster.expanded:
            continue
        changed = change(cluster)
        rate, plan = speed(changed, 1)
        cost = network_dollars(changed) - network_dollars(cluster) if resource in _PRICED else None
        found.append(_value(resource, rate / base, MORE, plan, cost))
    twice = replace(cluster, count=2 * cluster.count)
    rate, plan = speed(twice, 2)
    added = cluster.count * usual_capital(cluster.device.price_per_hour)
    cost = added + network_dollars(twice) - network_dollars(cluster)
    found.append(_value("devices", rate / base, 2.0, plan, cost))
    return tuple(sorted(found, key=lambda each: -each.elasticity))


def _value(resource: str, speedup: float, more: float, plan: str, dollars: float | None) -> Value:
    gain = max(speedup - 1.0, 0.0)
    return Value(resource=resource, faster=gain, elasticity=gain / (more - 1.0), plan=plan, dollars=dollars)
