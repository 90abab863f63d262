"""What the study of cluster design found, as rows for files and tables for people."""

from collections.abc import Mapping
from dataclasses import asdict

from rich.table import Table

from trainwright.report.tables import table
from trainwright.study.cluster_design import UNLIMITED_GB, Study
from trainwright.study.design_clusters import FREE, METHOD, TABLES, Rival
from trainwright.study.mp_dp import MpPoint
from trainwright.units import render_duration, render_si

Row = Mapping[str, object]
_SHOWN = 64  # devices of the largest instances that are printed


def study_tables(study: Study) -> Mapping[str, list[Row]]:
    """Every table by the name of its file."""
    return {
        "footprint": list(study.footprint),
        "mp_sweep": [
            {"memory_gb": memory} | asdict(point)
            for memory, points in study.sweeps.items()
            for point in points
        ],
        "batches": list(study.batches),
        **{f"map_{grid.name}": list(grid.rows()) for grid in study.grids},
        "sizes": list(study.sizes),
        "clusters": [each.row(study.of(each.space)[0]) for each in study.rivals if study.of(each.space)],
        "front": [each.row(study.of(FREE)[0]) for each in study.front],
        "instances": [asdict(each) for each in study.instances],
        "buy_next": [
            {"cluster": name} | asdict(each) | {"dollars_per_percent": each.dollars_per_percent}
            for name, values in study.values.items()
            for each in values
        ],
    }


def study_tree(study: Study) -> Mapping[str, object]:
    """Everything, for JSON."""
    return {"asked": study.asked, "notes": head_lines(study), "tables": study_tables(study)}


def head_lines(study: Study) -> list[str]:
    """The subject, and where this method is another's."""
    asked = study.asked
    return [
        f"{asked.model} (its layers) on {asked.devices:,} accelerators, {asked.batch} sequences a step; "
        "operators and links at their datasheets (roofline).",
        "MP is tensor parallelism over as many pods as it takes, DP shards gradients and optimizer state "
        "(ZeRO-2), layers are done again backward, nothing is split along the sequence: strategies like "
        "dp16 tp64 mb2 zero2 full. Heads are split into fractions where MP does not divide them.",
        f"{asked.recommender}: 512 samples a device, everything in fp32 (products in TF32, or as the device "
        "usually does); tables cut by table, row or column, MLPs in copies.",
    ]


def footprint_table(study: Study) -> Table:
    """State of a device by degree and stage of ZeRO."""
    rows = [
        [f"MP{row['mp']} DP{row['dp']}", *(f"{row[f'zero{zero}_gb']:.1f}" for zero in range(4))]
        for row in study.footprint
    ]
    title = "State of a device, GB (Adam in mixed precision; ZeRO-3 without the layers it gathers)"
    return table(title, ["", "ZeRO-0", "ZeRO-1", "ZeRO-2", "ZeRO-3"], rows)


def sweep_table(study: Study, memory: str) -> Table:
    """Every degree, by COMET's parts."""
    name = "unlimited memory" if float(memory) >= UNLIMITED_GB else f"{memory} GB a device"
    headers = ["", "step", "FP", "IG", "WG", "again", "FP exp.", "IG exp.", "WG exp.", "GB", "fits"]
    rows = [_sweep_row(each) for each in study.sweeps[memory]]
    return table(f"Degrees with {name} (seconds; exp.: exposed communication)", headers, rows)


def _sweep_row(point: MpPoint) -> list[str]:
    parts = (
        point.step_s, point.fp_compute_s, point.ig_compute_s, point.wg_compute_s, point.again_s,
        point.fp_exposed_s, point.ig_exposed_s, point.wg_exposed_s,
    )  # fmt: skip
    return [
        f"MP{point.mp} DP{point.dp}", *(f"{each:.1f}" for each in parts), f"{point.total_bytes / 1e9:,.0f}",
        "yes" if point.fits else "no",
    ]  # fmt: skip


def clusters_table(study: Study, space: str) -> Table:
    """Clusters side by side: speed, and what a device, a dollar and a watt give."""
    titles = {METHOD: "MP x DP, ZeRO-2", FREE: "the best strategy of any kind", TABLES: "recommender"}
    found = study.of(space)
    missing = [each.cluster for each in study.rivals if each.space == space and not each.fits]
    headers = ["cluster", "plan", "step", "samples/s", "rel.", "/device", "/M$", "/MW"]
    rows = [_rival_row(each, found[0]) for each in found] + [[name, "does not fit"] for name in missing]
    return table(f"Clusters: {titles[space]}", headers, [row + [""] * (8 - len(row)) for row in rows], left=2)


def _rival_row(rival: Rival, best: Rival) -> list[str]:
    row = rival.row(best)
    numbers = ("samples_per_s_per_device", "samples_per_s_per_million_dollars", "samples_per_s_per_mw")
    plan = rival.plan.replace("table-parallel ", "").replace(" precision=fp32", "")
    return [
        rival.cluster, plan, render_duration(rival.step_s), render_si(rival.samples_per_s, "").strip(),
        f"{row['relative']:.2f}", *(f"{row[name]:.3g}" for name in numbers),
    ]  # fmt: skip


def front_table(study: Study) -> Table:
    """What no other cluster beats in cost, power and time together."""
    headers = ["cluster", "devices", "M$", "MW", "step"]
    rows = [
        [
            each.cluster, str(each.devices), f"{each.dollars / 1e6:.1f}", f"{each.power_w / 1e6:.2f}",
            render_duration(each.step_s),
        ]
        for each in study.front
    ]  # fmt: skip
    return table("Front of cost, power and time (half, all and twice the devices)", headers, rows)


def instances_table(study: Study) -> Table:
    """The recommender in instances of each size, by expansion."""
    headers = ["expanded", "GB/s", "devices each", "instances", "step", "samples/s in all", "GB a device"]
    rows = [
        [
            f"{each.expanded_gb:g} GB" if each.expanded_gb else "none", f"{each.expanded_gbps:g}",
            str(each.devices), str(each.instances), render_duration(each.step_s),
            render_si(each.samples_per_s, "").strip(), f"{each.memory_bytes / 1e9:.0f}",
        ]
        for each in study.instances
        if each.devices <= _SHOWN
    ]  # fmt: skip
    return table(f"{study.asked.recommender} in instances beside each other", headers, rows)


def value_table(study: Study, name: str) -> Table:
    """What a tenth more of each resource is worth."""
    headers = ["resource", "faster", "of what it could", "best plan then", "$ per percent"]
    rows = [
        [
            each.resource, f"{each.faster:+.1%}", f"{each.elasticity:.2f}", each.plan,
            f"{each.dollars_per_percent:,.0f}" if each.dollars_per_percent else "–",
        ]
        for each in study.values[name]
    ]  # fmt: skip
    return table(f"What to buy next: {name} (a tenth more; devices: twice, and the batch)", headers, rows)
