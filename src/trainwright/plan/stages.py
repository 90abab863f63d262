"""Stages of a pipeline: the layers of each, and the devices and orders that a schedule gives them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from trainwright.errors import BadInput
from trainwright.model.flow import Instance
from trainwright.model.graph import Graph, is_layer, segment_parameters
from trainwright.plan.plan import Assign, Order, Plan, Stage
from trainwright.plan.schedules import EVERY_ROW, Schedule, build_schedule
from trainwright.plan.select import NOTHING, layer_range


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging:
    """A schedule by name with its options; and, if they are not to be found, the layers of each stage."""

    schedule: str = "1f1b"
    options: Mapping[str, float] = field(default_factory=dict)
    counts: tuple[int, ...] = ()

    def build(self, pp: int, microbatches: int) -> Schedule:
        """The schedule for a pipeline of p rows."""
        return build_schedule(self.schedule, pp, microbatches, **self.options)


def layer_names(instances: Sequence[Instance]) -> list[str]:
    """The blocks that stages divide, in order."""
    return list(dict.fromkeys(each.block for each in instances if each.layer is not None))


def cut(names: Sequence[str], counts: Sequence[int]) -> list[list[str]]:
    """The layers of each stage."""
    if sum(counts) != len(names) or min(counts) < 0:
        raise BadInput(
            "stages", ":".join(map(str, counts)), f"do not add up to the model's {len(names)} layers",
            "give every layer to one stage",
        )  # fmt: skip
    return [list(names[a:b]) for a, b in pairwise(accumulate(counts, initial=0))]


def stage_counts(rows: Sequence[int], route: Sequence[int]) -> list[int]:
    """Layers of each stage on a route, from those of each row: its chunks alike, the first ones larger.

    What the first stage's row has less than the fullest is missing from the first stage, which has the
    embedding; what the last stage's has less, from the last one, which has the head; if that is more than
    such a stage has, from the row's next.
    """
    chunks = {row: sum(each == row for each in route) for row in range(len(rows))}
    seen = dict.fromkeys(chunks, 0)
    stages = [each for each in route if each != EVERY_ROW]
    counts = []
    for row in stages:
        whole = max(rows) if row in (stages[0], stages[-1]) and chunks[row] > 1 else rows[row]
        even, rest = divmod(whole, chunks[row])
        counts.append(even + (seen[row] < rest))
        seen[row] += 1
    for row, places in ((stages[0], range(len(stages))), (stages[-1], reversed(range(len(stages))))):
        own = [place for place in places if stages[place] == row]
        surplus = sum(counts[place] for place in own) - rows[row]
        for place in own:
            taken = min(surplus, counts[place])
            counts[place] -= taken
            surplus -= taken
    return counts


def even_counts(layers: int, pp: int, vpp: int = 1) -> list[int]:
    """Layers of each row: equal; or equal with both ends counted as layers; else the middle has more."""
    if pp > 2 and (layers + 2) % (pp * vpp) == 0 and layers % (pp * vpp):
        middle = (layers + 2) // pp
        return [middle - 1, *[middle] * (pp - 2), middle - 1]
    even, rest = divmod(layers, pp)
    order = [*range(1, pp - 1), 0, pp - 1] if pp > 1 else [0]
    more = set(order[:rest])
    return [even + (row in more) for row in range(pp)]


def balanced_counts(layers: int, pp: int, graph: Graph) -> list[int]:
    """Layers of each row, cut by work: the head counts as many layers as it has weights."""
    mean = sum(segment_parameters(graph, each) for each in graph.segments if is_layer(each.block)) / layers
    head = sum(segment_parameters(graph, each) for each in graph.segments if each.block.name.endswith("head"))
    most = min(-(-(layers + head / mean) // pp), layers)
    counts = [min(int(most), max(layers - int(most) * row, 0)) for row in range(pp)]
    counts[-1] += layers - sum(counts)
    return counts


def stage_patterns(instances: Sequence[Instance], layers: Sequence[Sequence[str]]) -> list[str]:
    """The operators of each stage: its layers, and the ends of stacks beside the layers they belong to."""
    home = block_homes(instances, layers)
    stages = range(len(layers))
    return [block_pattern([name for name in home if home[name] == number]) for number in stages]


def shared_patterns(instances: Sequence[Instance], layers: Sequence[Sequence[str]]) -> list[str]:
    """The operators of each stage where a first one has all embeddings and a last one the head.

    Only what is split on a vocabulary is theirs; norms and sums beside it stay with the layers.
    """
    home = block_homes(instances, layers)
    found: list[list[str]] = [[] for _ in range(len(layers) + 2)]
    for each in instances:
        shared = each.op.region == "vocab"
        stage = home[each.block] + 1
        if shared:
            stage = 0 if "embedding" in each.block else len(layers) + 1
        whole = each.layer is not None
        found[stage].append(each.block if whole else each.name)
    return [_joined(names) for names in found]


def _joined(names: Sequence[str]) -> str:
    """The pattern of some blocks and some operators."""
    ops = list(dict.fromkeys(name for name in names if "/" in name))
    blocks = list(dict.fromkeys(name for name in names if "/" not in name))
    return ",".join([*ops, *([block_pattern(blocks)] if blocks else [])]) or NOTHING


def block_homes(instances: Sequence[Instance], layers: Sequence[Sequence[str]]) -> dict[str, int]:
    """The stage of every block in order: an embedding goes with the next layer, an end with the last."""
    known = {name: number for number, names in enumerate(layers) for name in names}
    blocks = list(dict.fromkeys(each.block for each in instances))
    home: dict[str, int] = {}
    for at, name in enumerate(blocks):
        near = blocks[at:] if "embedding" in name else blocks[at::-1]
        home[name] = next((known[each] for each in near if each in known), len(layers) - 1)
    if not layers[0] and "embedding" in blocks[0]:
        home[blocks[0]] = 0
    if not layers[-1] and blocks[-1] not in known:
        home[blocks[-1]] = len(layers) - 1
    return home


def block_pattern(names: Sequence[str]) -> str:
    """The pattern that chooses some blocks, or none."""
    numbered: dict[str, list[int]] = {}
    plain: list[str] = []
    for name in names:
        stem, _, number = name.rpartition(".")
        if stem and number.isdecimal():
            numbered.setdefault(stem, []).append(int(number))
        else:
            plain.append(name)
    runs = (layer_range(sorted(each), stem) for stem, each in numbered.items())
    return ",".join([*plain, *runs]) or NOTHING


def op_pattern(instances: Sequence[Instance]) -> str:
    """The pattern that chooses some operators, each in runs of blocks."""
    blocks: dict[str, list[str]] = {}
    for each in instances:
        blocks.setdefault(each.op.name, []).append(each.block)
    return ",".join(
        f"{block}/{op}" for op, names in blocks.items() for block in block_pattern(names).split(",")
    )


def place_schedule(
    schedule: Schedule, stages: Sequence[str], rows: Sequence[tuple[int, ...]], replicas: int = 1
) -> Plan:
    """The stages, where each is for each route, and the order of every row.

    A stage of every row is on all devices, first those of the first of the `replicas` in every row.
    """
    return Plan(
        stages=tuple(Stage(ops=ops) for ops in stages),
        assigns=tuple(
            Assign(
                ops=ops, devices=everywhere(rows, replicas) if row == EVERY_ROW else rows[row],
                route=(number, len(schedule.routes)),
            )
            for number, route in enumerate(schedule.routes)
            for ops, row in zip(stages, route, strict=True)
        ),
        orders=tuple(Order(devices=rows[row], actions=actions) for row, actions in enumerate(schedule.rows)),
    )  # fmt: skip


def everywhere(rows: Sequence[tuple[int, ...]], replicas: int) -> tuple[int, ...]:
    """The devices of all rows, replica by replica."""
    inner = len(rows[0]) // replicas
    starts = range(0, len(rows[0]), inner)
    return tuple(device for start in starts for row in rows for device in row[start : start + inner])
