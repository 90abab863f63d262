"""Recommenders: tables split over devices, MLPs in copies (Mudigere et al., 2022, arXiv 2104.05158)."""

from trainwright.errors import BadInput
from trainwright.model.dlrm import TABLE_ROWS, TABLES, WIDTH
from trainwright.model.graph import Graph
from trainwright.plan.plan import Plan, Shard, Split, Transform
from trainwright.plan.sharding import Sharding
from trainwright.plan.zoo.structured import REST

_DIMS = {"tables": TABLES, "rows": TABLE_ROWS, "columns": WIDTH}


def table_parallel(
    graph: Graph,
    devices: int,
    batch: int,
    *,
    tables: int = REST,
    rows: int = 1,
    columns: int = 1,
    zero: int = 0,
    precision: str = "bf16",
) -> Plan:
    """Whole tables dealt to devices, or each cut by rows or columns; everything else split on samples.

    What is looked up goes from where tables lie to where samples are: all-to-alls, of rows sums.
    """
    degrees = _filled(devices, {"tables": tables, "rows": rows, "columns": columns})
    if batch % devices:
        raise BadInput("batch", batch, f"does not divide by {devices} devices", "change one of them")
    if TABLES not in graph.sizes:
        raise BadInput("plan table-parallel", graph.name, "has no tables", "use it for a recommender")
    transforms: list[Transform] = [
        Split(
            ops="embedding", dim=_DIMS[name], parts=parts, sizes=_parts(graph.sizes[_DIMS[name]], parts, name)
        )
        for name, parts in degrees.items()
        if parts > 1
    ]
    if devices > 1:
        transforms.append(Split(ops="bottom.*,interaction.end,top.*,head", dim="batch", parts=devices))
    for stage, what in ((3, "weights"), (2, "gradients"), (1, "optimizer")):
        if zero >= stage:
            transforms.append(Shard(ops="bottom.*,top.*", what=what))  # type: ignore[arg-type]
    return Plan(devices=devices, batch=batch, precision=precision, transforms=tuple(transforms))


def sharding_of(plan: Plan) -> Sharding | None:
    """The sharding of a table-parallel plan, if a closed form knows it: without sharded MLPs."""
    if any(isinstance(each, Shard) for each in plan.transforms):
        return None
    names = {dim: name for name, dim in _DIMS.items()}
    degrees = {
        names[each.dim]: each.parts
        for each in plan.transforms
        if isinstance(each, Split) and each.dim in names
    }
    return Sharding(**degrees, precision=plan.precision)


def _filled(devices: int, degrees: dict[str, int]) -> dict[str, int]:
    taken = 1
    for degree in degrees.values():
        taken *= degree or 1
    open_ = [name for name, degree in degrees.items() if degree == REST]
    if taken < 1 or devices % taken or (not open_ and taken != devices):
        raise BadInput(
            "plan: degrees", " ".join(f"{name}={degree}" for name, degree in degrees.items()),
            f"their product is not {devices} devices", "choose other degrees",
        )  # fmt: skip
    filled = {name: devices // taken if name == open_[0] else 1 for name in open_}
    return degrees | filled


def _parts(size: int, parts: int, name: str) -> tuple[int, ...]:
    """Parts as even as can be, where they cannot be equal; none if they are."""
    if parts > size:
        raise BadInput(
            "plan table-parallel", f"{name}={parts}", f"there are {size}", "split another way, too"
        )
    if size % parts == 0:
        return ()
    return tuple(size // parts + (index < size % parts) for index in range(parts))
