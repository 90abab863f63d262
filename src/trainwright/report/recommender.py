"""The numbers of a recommender's plans, and tables of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from trainwright.cluster.power import activity_of, power_w
from trainwright.cost.load import Interval
from trainwright.economics.money import GRID_KG_PER_KWH
from trainwright.estimate.laid import Laid
from trainwright.estimate.types import COMMUNICATION, Job
from trainwright.model.totals import model_flops
from trainwright.plan.sharding import Sharding
from trainwright.report.run_lines import render_range
from trainwright.report.tables import table
from trainwright.units import render_bytes, render_duration, render_si

_NEGLIGIBLE = 1e-4  # of the step
_BILLION = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesSummary:
    """One sharding's prediction; samples, power and money are those of all instances together."""

    sharding: Sharding
    plan: str  # as `trainwright simulate` takes it
    devices: int  # of an instance
    instances: int
    global_batch: int  # of an instance
    step_s: float
    low_s: float
    high_s: float
    samples_per_s: float
    samples_per_s_per_device: float
    mfu: float
    exposed_fraction: float
    time_s: Mapping[str, float]
    communication_s: Mapping[str, float]
    memory_bytes: Mapping[str, float]
    total_bytes: float
    capacity_bytes: float  # of a device, expanded tiers included
    tier_bytes: Mapping[str, float]  # of tables, by expanded tier
    power_w: float
    dollars_per_billion_samples: float
    joules_per_sample: float
    co2e_kg_per_billion_samples: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesTerms:
    """What turns the times of shardings into ranges, money and carbon."""

    interval: Interval
    dollars_per_kwh: float = 0.0  # on top: zero where the price of an hour includes electricity
    grid_kg_per_kwh: float = GRID_KG_PER_KWH


def summarize_laid(job: Job, laid: Laid, terms: TablesTerms, top: int) -> tuple[TablesSummary, ...]:
    """The fastest shardings that fit, at most `top`."""
    return tuple(_summary(job, laid, rank, terms) for rank in range(min(laid.fitting, top)))


def _summary(job: Job, laid: Laid, rank: int, terms: TablesTerms) -> TablesSummary:
    index, sharding, result, cluster = (
        int(laid.order[rank]),
        laid.shardings[rank],
        laid.estimates,
        job.cluster,
    )
    step = float(result.step_s[index])
    time = {name: float(values[index]) for name, values in result.time_s.items()}
    moved = {name: float(values[index]) for name, values in result.communication_s.items()}
    rate = laid.instances * laid.global_batch / step
    used = laid.instances * laid.devices
    power = float(power_w(cluster, activity_of(time, moved, step)))
    peak = laid.devices * cluster.device.peak(sharding.precision) * step
    kwh = power / rate * _BILLION / 3.6e6  # of a billion samples
    hours = cluster.count / 3600.0 / rate * _BILLION  # of devices, for the same
    return TablesSummary(
        sharding=sharding,
        plan=str(sharding),
        devices=laid.devices,
        instances=laid.instances,
        global_batch=laid.global_batch,
        step_s=step,
        low_s=step * terms.interval.low,
        high_s=step * terms.interval.high,
        samples_per_s=rate,
        samples_per_s_per_device=rate / used,
        mfu=model_flops(job.graph, laid.global_batch, 1) / peak,
        exposed_fraction=sum(time[name] for name in COMMUNICATION) / step,
        time_s=time,
        communication_s=moved,
        memory_bytes={name: float(values[index]) for name, values in result.memory_bytes.items()},
        total_bytes=float(result.total_bytes[index]),
        capacity_bytes=cluster.capacity_bytes,
        tier_bytes={
            tier: float(values[index])
            for (tier, part), values in result.tier_bytes.items()
            if part == "weights"
        },
        power_w=power,
        dollars_per_billion_samples=hours * cluster.device.price_per_hour + kwh * terms.dollars_per_kwh,
        joules_per_sample=power / rate,
        co2e_kg_per_billion_samples=kwh * terms.grid_kg_per_kwh,
    )


def shardings_table(summaries: Sequence[TablesSummary]) -> Table:
    """The best shardings, one row each."""
    headers = ["#", "tables", "rows", "columns", "step", "low–high", "samples/s", "MFU", "exposed", "memory"]
    rows = [
        [
            str(rank), *(str(getattr(each.sharding, name)) for name in ("tables", "rows", "columns")),
            render_duration(each.step_s), render_range(each.low_s, each.high_s),
            render_si(each.samples_per_s, ""), f"{each.mfu:.1%}", f"{each.exposed_fraction:.0%}",
            render_bytes(each.total_bytes),
        ]
        for rank, each in enumerate(summaries, start=1)
    ]  # fmt: skip
    return table("", headers, rows)


def instances_table(summaries: Sequence[TablesSummary]) -> Table:
    """The cluster in instances of each size beside each other."""
    headers = ["devices each", "instances", "tables", "rows", "columns", "step", "samples/s in all", "memory"]
    best = max(summaries, key=lambda each: each.samples_per_s)
    rows = [
        [
            f"{each.devices}{' *' if each is best else ''}", str(each.instances),
            *(str(getattr(each.sharding, name)) for name in ("tables", "rows", "columns")),
            render_duration(each.step_s), render_si(each.samples_per_s, ""), render_bytes(each.total_bytes),
        ]
        for each in summaries
    ]  # fmt: skip
    return table("Instances beside each other (* most samples from the cluster)", headers, rows)


def headline(best: TablesSummary) -> tuple[str, ...]:
    """The winner in a few lines."""
    return (
        f"{render_si(best.samples_per_s, 'samples/s')}, "
        f"{render_si(best.samples_per_s_per_device, 'samples/s')} per device, MFU {best.mfu:.1%}, step "
        f"{render_duration(best.step_s)} ({render_range(best.low_s, best.high_s)})",
        f"{best.dollars_per_billion_samples:,.3g} $ per billion samples, {render_si(best.power_w, 'W')}, "
        f"{render_si(best.joules_per_sample, 'J')} per sample, "
        f"{best.co2e_kg_per_billion_samples:,.3g} kg CO₂e per billion samples",
    )


def parts_tables(best: TablesSummary) -> tuple[Table, Table]:
    """Where the step's time goes, and what fills a device."""
    times = sorted(best.time_s.items(), key=lambda item: -item[1])
    rows = [
        [
            name, render_duration(value), f"{value / best.step_s:.1%}",
            render_duration(whole) if (whole := best.communication_s.get(name)) else "",
        ]
        for name, value in times
        if value > _NEGLIGIBLE * best.step_s
    ]  # fmt: skip
    parts = sorted(best.memory_bytes.items(), key=lambda item: -item[1])
    far = [(f"tables in {tier}", value) for tier, value in best.tier_bytes.items() if value > 0]
    held = [*(each for each in parts if each[1] > 0), ("total", best.total_bytes), *far]
    memory = [[name, render_bytes(value), f"{value / best.capacity_bytes:.1%}"] for name, value in held]
    return (
        table("Time of a step", ["part", "adds", "share", "in all"], rows),
        table("Memory of the fullest device", ["part", "bytes", "of capacity"], memory),
    )
