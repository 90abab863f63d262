"""Figures of the study of cluster design, each with the claim that it tests."""

from collections.abc import Sequence
from itertools import pairwise
from math import inf, isinf

from trainwright.report.figures import Axis, Band, Figure, Series
from trainwright.report.figures import Grid as Cells
from trainwright.study.cluster_design import BASELINE_GB, LARGE_GB, UNLIMITED_GB, Study
from trainwright.study.design_clusters import FREE, METHOD, TABLES, Rival
from trainwright.study.design_maps import Grid
from trainwright.study.design_tables import InstanceRow
from trainwright.study.mp_dp import MpPoint, best_mp

PUBLISHED_SPREAD = 7.7
PUBLISHED_GAIN = 1.4
_ORDER = (PUBLISHED_SPREAD / 3.0, PUBLISHED_SPREAD * 3.0)  # what is of the order of the published spread
_MP = Axis(title="MP", log=True)


def study_figures(study: Study) -> list[Figure]:
    """All figures, in the order of the method."""
    return [
        _footprint(study), _u_shape(study), _memory(study), _expansion(study), _compute(study),
        _network(study), _spread(study, METHOD), _spread(study, FREE), _normalised(study), _front(study),
        _instances(study), _tables(study), _spread(study, TABLES), _values(study),
    ]  # fmt: skip


def _drawn(grid: Grid) -> Cells:
    """A grid as a heat map has it."""

    def words(values: Sequence[float]) -> tuple[str, ...]:
        return tuple("endless" if isinf(each) else f"{each:g}" for each in values)

    return Cells(
        columns=words(grid.x), rows=words(grid.y), title="times as fast as the baseline",
        values=tuple(tuple(each or None for each in row) for row in grid.speedup),
    )  # fmt: skip


def smallest_fitting(points: Sequence[MpPoint]) -> int:
    """The smallest degree that fits; 0 if none does."""
    return min((each.mp for each in points if each.fits), default=0)


def is_u_shaped(points: Sequence[MpPoint]) -> bool:
    """Whether some degree inside is the best, and time only grows above it."""
    steps = [each.step_s for each in points]
    lowest = steps.index(min(steps))
    return 0 < lowest < len(steps) - 1 and all(a < b for a, b in pairwise(steps[lowest:]))


def is_monotone(grid: Grid) -> bool:
    """Whether no value shrinks as `y` grows."""
    return all(
        high >= low - 1e-9
        for below, above in pairwise(grid.speedup)
        for low, high in zip(below, above, strict=True)
    )


def _footprint(study: Study) -> Figure:
    points = study.sweeps[f"{BASELINE_GB:g}"]
    smallest = smallest_fitting(points)
    x = tuple(float(each.mp) for each in points)
    state = tuple(each.state_bytes / 1e9 for each in points)
    return Figure(
        name="footprint", title="Memory of a device by degree of model parallelism, ZeRO-2",
        claim=f"With {BASELINE_GB:g} GB and ZeRO-2, MP64 DP16 is the smallest degree that fits.",
        holds=smallest == 64 and study.asked.devices == 1024, finding=f"MP{smallest} is the smallest.",
        x=_MP, y=Axis(title="GB", log=True),
        series=(
            Series(name="state", x=x, y=state),
            Series(name="state and activations", x=x, y=tuple(each.total_bytes / 1e9 for each in points)),
        ),
        bands=(Band(name=f"{BASELINE_GB:g} GB", low=1.0, high=BASELINE_GB),),
    )  # fmt: skip


def _u_shape(study: Study) -> Figure:
    points = study.sweeps[f"{UNLIMITED_GB:g}"]
    best = min(points, key=lambda each: each.step_s)
    x = tuple(float(each.mp) for each in points)
    parts = {
        "step": "step_s", "forward": "fp_compute_s", "gradients of inputs": "ig_compute_s",
        "gradients of weights": "wg_compute_s", "forward again": "again_s",
        "exposed, forward": "fp_exposed_s", "exposed, weight gradients": "wg_exposed_s",
    }  # fmt: skip
    return Figure(
        name="mp_sweep", title="Time of a step by degree of model parallelism, unlimited memory",
        claim="The sweep is U-shaped: high MP pays sums of activations across pods, low MP pays gradients.",
        holds=is_u_shaped(points),
        finding=f"MP{best.mp} is the fastest at {best.step_s:.1f} s; MP{points[0].mp} takes "
        f"{points[0].step_s:.1f} s, MP{points[-1].mp} {points[-1].step_s:.1f} s (published: MP8 is best).",
        x=_MP, y=Axis(title="seconds", log=True),
        series=tuple(
            Series(name=name, x=x, y=tuple(max(getattr(each, field), 1e-3) for each in points))
            for name, field in parts.items()
        ),
    )  # fmt: skip


def _memory(study: Study) -> Figure:
    best = {memory: best_mp(points) for memory, points in study.sweeps.items()}
    large = best[f"{LARGE_GB:g}"]
    told = ", ".join(
        f"{'unlimited' if float(memory) >= UNLIMITED_GB else memory + ' GB'}: "
        + (f"MP{each.mp}, {each.step_s:.1f} s" if each else "nothing fits")
        for memory, each in best.items()
    )
    return Figure(
        name="memory", title="Time of a step by degree, of those that fit",
        claim=f"With {LARGE_GB:g} GB or more, a degree of at most 16 is the fastest.",
        holds=large is not None and large.mp <= 16, finding=f"{told}.", x=_MP,
        y=Axis(title="seconds", log=True),
        series=tuple(
            Series(
                name="unlimited" if float(memory) >= UNLIMITED_GB else f"{memory} GB",
                x=tuple(float(each.mp) for each in points if each.fits),
                y=tuple(each.step_s for each in points if each.fits),
            )
            for memory, points in study.sweeps.items()
        ),
    )  # fmt: skip


def _expansion(study: Study) -> Figure:
    grid = study.grid("expansion")
    bound = max(grid.speedup[-1])
    real = [row for row, rate in zip(grid.speedup, grid.y, strict=True) if not isinf(rate)]
    best = max(max(row) for row in real)
    least = min(min(row) for row in grid.speedup)
    holds = is_monotone(grid) and least >= 1.0 - 1e-9 and best <= bound + 1e-9
    return Figure(
        name="map_expansion", title="Expanded memory: capacity against bandwidth",
        claim="What expansion gains grows with its bandwidth, from 1.0x to the bound of endless bandwidth.",
        holds=holds,
        finding=f"{least:.2f}x to {best:.2f}x, the bound is {bound:.2f}x (published: up to "
        f"{PUBLISHED_GAIN}x, bound 1.5 to 1.8x).",
        x=Axis(title=grid.x_title), y=Axis(title=grid.y_title), grid=_drawn(grid),
    )  # fmt: skip


def _compute(study: Study) -> Figure:
    grid = study.grid("compute")
    at = grid.y.index(1.0)
    last = grid.speedup[at][-1]
    return Figure(
        name="map_compute", title="Compute against memory bandwidth",
        claim="More compute alone has diminishing returns: 8 times as much gives less than 4 times.",
        holds=last < 4.0,
        finding=f"{last:.2f}x, with 8 times the memory bandwidth too {grid.speedup[-1][-1]:.2f}x.",
        x=Axis(title=grid.x_title), y=Axis(title=grid.y_title), grid=_drawn(grid),
    )  # fmt: skip


def _network(study: Study) -> Figure:
    grid = study.grid("network")
    row, column = grid.y.index(31.25), grid.x.index(300.0)
    inter, intra = grid.speedup[row + 1][column], grid.speedup[row][column + 1]
    return Figure(
        name="map_network", title="Bandwidth inside pods against that between them",
        claim="Where MP spans pods, links between them limit: twice as much there gains more than inside.",
        holds=inter > intra, finding=f"Twice between pods {inter:.2f}x, twice inside {intra:.2f}x, "
        f"both {grid.speedup[row + 1][column + 1]:.2f}x.",
        x=Axis(title=grid.x_title), y=Axis(title=grid.y_title), grid=_drawn(grid),
    )  # fmt: skip


def spread(rivals: Sequence[Rival]) -> float:
    """How many times as fast the fastest of some clusters is as the slowest."""
    rates = [each.samples_per_s for each in rivals]
    return max(rates) / min(rates) if rates else inf


def _spread(study: Study, space: str) -> Figure:
    found = study.of(space)
    times = spread(found)
    model = study.asked.recommender if space == TABLES else study.asked.model
    names = {METHOD: "MP x DP", FREE: "the best strategy", TABLES: "the best instances"}
    return Figure(
        name=f"clusters_{space.replace(' ', '_')}", title=f"{model} on each cluster, {names[space]}",
        claim=f"Clusters differ by several times on one model, of the order of {PUBLISHED_SPREAD}x.",
        holds=_ORDER[0] <= times <= _ORDER[1],
        finding=f"{times:.1f}x from {found[-1].cluster} to {found[0].cluster}.",
        x=Axis(title=""), y=Axis(title="samples a second"),
        series=(
            Series(name="samples/s", x=tuple(each.cluster for each in found),
                   y=tuple(each.samples_per_s for each in found), kind="bars"),
        ),
    )  # fmt: skip


def _normalised(study: Study) -> Figure:
    found = study.of(FREE)
    rows = [each.row(found[0]) for each in found]
    fields = {
        "per device": "samples_per_s_per_device", "per dollar": "samples_per_s_per_million_dollars",
        "per watt": "samples_per_s_per_mw",
    }  # fmt: skip
    columns = {name: [float(str(row[field])) for row in rows] for name, field in fields.items()}
    best = {name: found[values.index(max(values))].cluster for name, values in columns.items()}
    return Figure(
        name="normalised", title="What a device, a dollar and a watt give, relative to the best",
        claim="The best cluster depends on what it is measured by.",
        holds=len(set(best.values())) > 1,
        finding="; ".join(f"{name}: {cluster}" for name, cluster in best.items()) + ".",
        x=Axis(title=""), y=Axis(title="of the best"),
        series=tuple(
            Series(name=name, x=tuple(each.cluster for each in found),
                   y=tuple(each / max(values) for each in values), kind="bars")
            for name, values in columns.items()
        ),
    )  # fmt: skip


def _front(study: Study) -> Figure:
    names = tuple(dict.fromkeys(each.cluster for each in study.front))
    return Figure(
        name="front", title="Front of cost, power and time",
        claim="More than one kind of cluster is worth its money.",
        holds=len(names) > 1, finding=f"On the front: {', '.join(names)}.",
        x=Axis(title="million dollars", log=True), y=Axis(title="seconds a step", log=True),
        series=tuple(
            Series(name=name, x=tuple(each.dollars / 1e6 for each in study.front if each.cluster == name),
                   y=tuple(each.step_s for each in study.front if each.cluster == name), kind="points")
            for name in names
        ),
    )  # fmt: skip


def _instances(study: Study) -> Figure:
    kinds = list(dict.fromkeys((each.expanded_gb, each.expanded_gbps) for each in study.instances))
    plain = [each for each in study.instances if not each.expanded_gb]
    more = [each for each in study.instances if each.expanded_gb]
    least = min((each.devices for each in plain), default=0)
    fewer = min((each.devices for each in more), default=0)
    best = max((each.samples_per_s for each in plain), default=0.0)
    gain = max((each.samples_per_s for each in more), default=0.0) / best if best else 0.0
    return Figure(
        name="instances", title=f"{study.asked.recommender}: samples of all instances, by their size",
        claim="Expanded memory lets a job run on fewer devices (64 to 8 or 16): more jobs share a cluster.",
        holds=0 < fewer <= 16 < least,
        finding=f"{least} devices without, {fewer} with it; the cluster then gives at most {gain:.2f}x.",
        x=Axis(title="devices of an instance", log=True), y=Axis(title="samples a second", log=True),
        series=tuple(
            Series(
                name=f"{gb:g} GB at {gbps:g} GB/s" if gb else "own memory",
                x=tuple(float(each.devices) for each in study.instances if _is(each, gb, gbps)),
                y=tuple(each.samples_per_s for each in study.instances if _is(each, gb, gbps)),
            )
            for gb, gbps in kinds
        ),
    )  # fmt: skip


def _tables(study: Study) -> Figure:
    grid = study.grid("tables")
    best = max(max(row) for row in grid.speedup)
    return Figure(
        name="map_tables", title=f"{study.asked.recommender}: expanded memory, capacity against bandwidth",
        claim="What expansion gains a recommender grows with its bandwidth, and never is a loss.",
        holds=is_monotone(grid) and min(min(row) for row in grid.speedup) >= 1.0 - 1e-9,
        finding=f"Up to {best:.2f}x, in instances of {min(min(row) for row in grid.mp)} devices; few rows of "
        "its tables are met in a step, so that slow memory serves them too.",
        x=Axis(title=grid.x_title), y=Axis(title=grid.y_title), grid=_drawn(grid),
    )  # fmt: skip


def _is(row: InstanceRow, gb: float, gbps: float) -> bool:
    return (row.expanded_gb, row.expanded_gbps) == (gb, gbps)


def _values(study: Study) -> Figure:
    first = {name: values[0] for name, values in study.values.items() if values}
    resources = list(dict.fromkeys(each.resource for values in study.values.values() for each in values))
    return Figure(
        name="buy_next", title="What a tenth more of each resource is worth",
        claim="No single resource but more devices is worth its whole share: compute alone is not.",
        holds=all(
            each.elasticity < 0.95 for values in study.values.values() for each in values
            if each.resource != "devices"
        ),
        finding=", ".join(f"{name}: {one.resource} ({one.elasticity:.2f})" for name, one in first.items()),
        x=Axis(title=""), y=Axis(title="share of it that becomes speed"),
        series=tuple(
            Series(
                name=name, x=tuple(resources), kind="bars",
                y=tuple(next((v.elasticity for v in values if v.resource == r), 0.0) for r in resources),
            )
            for name, values in study.values.items()
        ),
    )  # fmt: skip
