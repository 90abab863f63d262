"""Predicted wall time of training algorithms on links: what is computed, what is sent, what is hidden."""

from dataclasses import dataclass

from trainwright.algorithm.anatomy import Anatomy, Axis, Weight
from trainwright.algorithm.exact import Exact, whole_compute
from trainwright.algorithm.ist import Ist
from trainwright.algorithm.message import Message, sent_bytes
from trainwright.algorithm.protocol import Algorithm, Seat
from trainwright.algorithm.streaming import StreamingDiLoCo

_HIDDEN_SHARE = 2.0 / 3.0  # of a step: gradients are sent while the backward pass goes on


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What a worker is joined to the others by; a ring's hop or a direct message takes the latency."""

    name: str
    bytes_per_s: float
    latency_s: float


# Between sites, in a campus, Ethernet of a rack, InfiniBand.
LINKS = (
    Link(name="100 Mb/s", bytes_per_s=100e6 / 8, latency_s=10e-3),
    Link(name="1 Gb/s", bytes_per_s=1e9 / 8, latency_s=1e-3),
    Link(name="10 Gb/s", bytes_per_s=10e9 / 8, latency_s=100e-6),
    Link(name="400 Gb/s", bytes_per_s=400e9 / 8, latency_s=5e-6),
)


def hops(message: Message, workers: int) -> int:
    """How many latencies it takes: 2(n-1) of a ring's all-reduce, n-1 of the others."""
    return (workers - 1) * (2 if message.kind == "all-reduce" else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a worker does in a step of a run, on any link; `hidden` steps go on while it is sent."""

    flops: float
    sent_bytes: float
    hops: int
    hidden: float

    def seconds(self, flops_per_s: float, link: Link) -> float:
        """What it takes: what is sent beyond what hides it is waited for."""
        computed = self.flops / flops_per_s
        said = self.sent_bytes / link.bytes_per_s + self.hops * link.latency_s
        return computed + max(said - self.hidden * computed, 0.0)


def steps_of(algorithm: Algorithm, anatomy: Anatomy, seat: Seat, samples: int) -> list[Step]:
    """All steps of a run.

    Exact data parallelism, and exact steps of subnetworks, send while the backward pass goes on; streaming
    DiLoCo while its next steps do.
    """
    costs = {True: whole_compute(anatomy), False: algorithm.compute(anatomy, seat.workers)}
    found = []
    for step in range(seat.steps):
        whole = _whole(algorithm, seat, step)
        cost = costs[whole]
        said = algorithm.messages(anatomy, seat, step)
        found.append(
            Step(
                flops=cost.sample_flops * samples + cost.step_flops,
                sent_bytes=sum(sent_bytes(each, seat.workers) for each in said),
                hops=sum(hops(each, seat.workers) for each in said),
                hidden=_HIDDEN_SHARE if whole else _hidden(algorithm),
            )
        )  # fmt: skip
    return found


def _whole(algorithm: Algorithm, seat: Seat, step: int) -> bool:
    """Whether subnetworks' whole model is trained."""
    return isinstance(algorithm, Ist) and algorithm.rounds(seat.steps).phase(step) != "apart"


def _hidden(algorithm: Algorithm) -> float:
    if isinstance(algorithm, Exact):
        return _HIDDEN_SHARE
    return float(algorithm.delay) if isinstance(algorithm, StreamingDiLoCo) else 0.0


def decoder(layers: int, hidden: int, seq: int) -> Anatomy:
    """The anatomy of a decoder: heads of 128, feed-forward layers of 4 times the hidden size."""
    heads, ffn = hidden // 128, 4 * hidden
    weights: list[Weight] = [Weight(name="embedding", sizes=(32_000, hidden))]
    units: dict[str, int] = {}
    for i in range(layers):
        of_heads, of_ffn = Axis(group=f"{i}.heads", width=128), Axis(group=f"{i}.ffn")
        units |= {of_heads.group: heads, of_ffn.group: ffn}
        weights += [
            Weight(name=f"{i}.{each}", sizes=(hidden, hidden), axes=(of_heads, None))
            for each in ("q", "k", "v")
        ]
        weights += [
            Weight(
                name=f"{i}.output", sizes=(hidden, hidden), axes=(None, of_heads), reads=of_heads.group
            ),
            Weight(name=f"{i}.up", sizes=(ffn, hidden), axes=(of_ffn, None)),
            Weight(name=f"{i}.down", sizes=(hidden, ffn), axes=(None, of_ffn), reads=of_ffn.group),
        ]  # fmt: skip
    scores = 2 * seq * seq * 128
    flops = {name: scores for name in units if name.endswith("heads")}
    return Anatomy(weights=tuple(weights), units=units, positions=seq, unit_flops=flops)
