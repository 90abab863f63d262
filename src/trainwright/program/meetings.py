"""What the islands of a plan tell each other, when, and how long it takes on the links between them."""

from dataclasses import dataclass, replace

import numpy as np

from trainwright.algorithm.anatomy import Anatomy
from trainwright.algorithm.ist import Ist, check_units
from trainwright.algorithm.meeting import round_steps
from trainwright.algorithm.message import FLOAT_BYTES, Message, sent_bytes
from trainwright.algorithm.protocol import Algorithm, Seat
from trainwright.cluster.sites import BETWEEN
from trainwright.cluster.types import Cluster
from trainwright.cost.collective import Link, all_gather_s, all_reduce_s, all_to_all_s, span
from trainwright.cost.constants import Stack
from trainwright.cost.network import level_links
from trainwright.cost.state import state_widths
from trainwright.errors import BadInput
from trainwright.model.graph import Graph, parameters
from trainwright.program.anatomy import build_anatomy, check_dense, slice_graph
from trainwright.program.setting import Setting

_ROUNDS_BEFORE = 2  # rounds after which an algorithm does the same in each
_COSTS = {"all-reduce": all_reduce_s, "all-gather": all_gather_s, "all-to-all": all_to_all_s}


@dataclass(frozen=True, slots=True, kw_only=True)
class Apartness:
    """Islands that learn together: the algorithm, the model as it knows it, and how many they are."""

    algorithm: Algorithm
    anatomy: Anatomy
    islands: int

    @property
    def every(self) -> int:
        """Steps of a round."""
        return round_steps(self.algorithm)

    @property
    def exact_steps(self) -> int:
        """Steps of a run in which islands sum gradients as exact training does."""
        return self.exact_before + int(getattr(self.algorithm, "finish", 0))

    @property
    def exact_before(self) -> int:
        """Those before the first round."""
        return sum(int(getattr(self.algorithm, name, 0)) for name in ("warmup", "exact"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """What is told after so many steps of a round: it must have arrived `delay` steps later.

    `link_s` is the time on the links between islands, `apply_s` what devices do with it: an outer step, or
    compressing gradients, and the gather inside the island of what each device has taken part in for others.
    """

    after: int
    delay: int
    messages: tuple[Message, ...]
    link_s: float
    apply_s: float


def build_apartness(graph: Graph, seq: int, algorithm: Algorithm, islands: int) -> Apartness:
    """Islands that train a model by an algorithm; raises if it cannot be divided as the algorithm wants."""
    if islands < 2:
        rule = "leaves nobody to learn together with"
        raise BadInput("islands", islands, rule, "use a cluster of several, or leave out --algorithm")
    anatomy = build_anatomy(graph, seq)
    if isinstance(algorithm, Ist):
        _check_divisible(graph, anatomy, islands)
    return Apartness(algorithm=algorithm, anatomy=anatomy, islands=islands)


def _check_divisible(graph: Graph, anatomy: Anatomy, islands: int) -> None:
    """Raise for a model of which so many subnetworks cannot be made."""
    try:
        check_dense(graph)
    except BadInput as error:
        rule = "has experts or reads its own output, of which no subnetworks are known"
        raise BadInput("model", graph.name, rule, "leave out ist: diloco trains it") from error
    check_units(anatomy, islands)


def island_graph(graph: Graph, apart: Apartness) -> Graph:
    """What an island trains: the model, or the largest slice of it."""
    if not isinstance(apart.algorithm, Ist):
        return graph
    return slice_graph(graph, apart.algorithm.cut(apart.anatomy, apart.islands))


def held_share(stack: Stack, precision: str, weights_bytes: float, graph: Graph, family: str = "") -> float:
    """The share of its island's weights that a device holds which has so many bytes of them."""
    weight = state_widths(stack, family, precision).stored
    return min(weights_bytes / (weight * parameters(graph)), 1.0)


def island_cluster(cluster: Cluster, islands: int) -> Cluster:
    """One island: an equal part of the devices that no level of the network cuts through."""
    devices, rest = divmod(cluster.count, islands)
    inside = 1
    for level in cluster.levels:
        whole = inside * level.size
        if not rest and devices % inside == 0 and whole % devices == 0:
            return replace(cluster, count=devices)
        inside = whole
    sizes = ", ".join(str(each) for each in island_counts(cluster)) or "none by its levels"
    rule = f"do not divide {cluster.count} devices along the levels of their network"
    raise BadInput("islands", islands, rule, f"use what its levels make: {sizes}")


def island_counts(cluster: Cluster) -> tuple[int, ...]:
    """How many islands there are if they are what each level but the outermost joins; fewest first.

    A device is an island of its own only where it is alone at its site.
    """
    insides = np.cumprod([level.size for level in cluster.levels]).tolist()[:-1]
    if cluster.levels and cluster.levels[0].name == BETWEEN:
        insides = [1, *insides]
    return tuple(cluster.count // inside for inside in reversed(insides) if not cluster.count % inside)


def beside_bytes(apart: Apartness, slice_elements: int, devices: int) -> float:
    """What each of an island's devices holds beside the model that it trains, by the algorithm's own account.

    An outer model with its momentum, homes of divided weights; the rest of the whole model's state, if that
    is ever trained. All of an island's devices share it alike.
    """
    memory = apart.algorithm.memory(apart.anatomy, apart.islands)
    more = (memory.weights - slice_elements) + (memory.gradients - slice_elements)
    more += 2.0 * (memory.moments - slice_elements) + memory.beside
    return FLOAT_BYTES * more / devices


def round_messages(apart: Apartness) -> tuple[tuple[int, tuple[Message, ...]], ...]:
    """After which step of a round an island passes what to collectives; a round like all but first and last.

    What is fetched before the first step of a round is told when the one before it ends.
    """
    every, first = apart.every, apart.exact_before + _ROUNDS_BEFORE * apart.every
    seat = Seat(rank=0, workers=apart.islands, steps=first + 4 * every + apart.exact_steps)
    found: dict[int, list[Message]] = {}
    for step in range(every):
        for message in apart.algorithm.messages(apart.anatomy, seat, first + step):
            fetched = step == 0 and message.kind == "all-to-all"
            found.setdefault(every if fetched else step + 1, []).append(message)
    return tuple((after, tuple(messages)) for after, messages in sorted(found.items()))


def build_meetings(setting: Setting, apart: Apartness, held: float) -> tuple[Meeting, ...]:
    """The meetings of a round on a whole cluster, where a device holds that share of its island's weights.

    Each of an island's devices tells its equal part to the devices of the other islands that have the same.
    """
    devices = setting.cluster.count // apart.islands
    links = level_links(setting.cluster, setting.efficiency, setting.stack)
    delay = int(getattr(apart.algorithm, "delay", 0))
    return tuple(
        Meeting(
            after=after, delay=delay, messages=messages,
            link_s=sum(_link_s(links, each, apart.islands, devices) for each in messages),
            apply_s=_work_s(setting, apart, messages) + _gather_s(setting, apart, messages, held),
        )
        for after, messages in round_messages(apart)
    )  # fmt: skip


def _link_s(links: tuple[Link, ...], message: Message, islands: int, devices: int) -> float:
    """The time of a message, which is never shorter than light takes there (and back, if it is summed)."""
    where = span(links, np.full(1, float(islands)), np.full(1, float(devices)))
    size = np.full(1, _arriving_bytes(message, islands) / devices)
    found = float(_COSTS[message.kind](links, where, size)[0])
    return max(found, links[-1].latency_s * (2.0 if message.kind == "all-reduce" else 1.0))


def _arriving_bytes(message: Message, islands: int) -> float:
    """What an island has of a message in the end: of a gather, the parts of all."""
    return message.bytes * (islands if message.kind == "all-gather" else 1)


def _work_s(setting: Setting, apart: Apartness, messages: tuple[Message, ...]) -> float:
    """What a device does with its equal part of what is told: traffic of its memory, and products in fp32.

    Of an outer step, what is told is read and written once, and what is remembered of it; of compressed
    gradients, all gradients are, however little of them is told. Choosing the largest is charged no more.
    """
    device, devices = setting.cluster.device, setting.cluster.count // apart.islands
    beside = apart.algorithm.memory(apart.anatomy, apart.islands).beside / apart.anatomy.elements
    compute = apart.algorithm.compute(apart.anatomy, apart.islands)
    whole = FLOAT_BYTES * apart.anatomy.elements
    told = sum(each.bytes for each in messages) if hasattr(apart.algorithm, "every") else whole
    touched = 2.0 * (1.0 + beside) * told + compute.step_bytes
    rate = device.memory[0].bytes_per_s * setting.efficiency.memory
    products = device.peak_flops_per_s.get("fp32", device.peak(device.usual_precision))
    return touched / devices / rate + compute.step_flops / devices / products


def _gather_s(setting: Setting, apart: Apartness, messages: tuple[Message, ...], held: float) -> float:
    """The gather of what has arrived by those devices of an island that have copies of the same weights.

    Copies are taken to stand as far from each other as they can inside the island.
    """
    island = replace(setting.cluster, count=setting.cluster.count // apart.islands)
    links = level_links(island, setting.efficiency, setting.stack)
    copies = max(round(island.count * held), 1)
    where = span(links, np.full(1, float(copies)), np.full(1, float(max(island.count // copies, 1))))
    sizes = [held * _arriving_bytes(each, apart.islands) for each in messages]
    return sum(float(all_gather_s(links, where, np.full(1, size))[0]) for size in sizes)


def round_sent_bytes(meetings: tuple[Meeting, ...], islands: int) -> float:
    """What an island sends to others in a round."""
    return sum(sent_bytes(each, islands) for meeting in meetings for each in meeting.messages)
