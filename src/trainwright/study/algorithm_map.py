"""The map: which training algorithm for which bandwidth, latency and size of model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from trainwright.algorithm.message import FLOAT_BYTES
from trainwright.algorithm.protocol import Seat
from trainwright.algorithm.registry import parse_algorithm
from trainwright.algorithm.risk import HIDDEN
from trainwright.study.links import Link, decoder, steps_of

SIZES: Mapping[str, tuple[int, int]] = {  # layers and hidden size
    "0.1B": (12, 768), "1B": (20, 2048), "10B": (32, 5120), "100B": (80, 10240),
}  # fmt: skip
BANDWIDTHS: Mapping[str, float] = {
    "100 Mb/s": 1e8 / 8, "1 Gb/s": 1e9 / 8, "10 Gb/s": 1e10 / 8, "100 Gb/s": 1e11 / 8, "400 Gb/s": 4e11 / 8,
}  # fmt: skip
LATENCIES: Mapping[str, float] = {"5 µs": 5e-6, "1 ms": 1e-3, "50 ms": 50e-3}
SEQ, SEQUENCES, WORKERS = 4096, 32, 4
STEPS = 100  # of the run that is predicted; settings are for so many
FLOPS_PER_S = 8 * 400e12  # a worker is a node of eight H100s at 40 % of their peak in bf16
TOLERANCES = (0.02, 0.05, 0.1)
ALONE = "one worker alone"  # exact training of the whole batch by one of them, the others idle


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the map is read: the predicted step of every method, and the fastest that may be taken."""

    size: str
    bandwidth: str
    latency: str
    step_s: Mapping[str, float]
    choice: Mapping[float, str]  # by how much loss may be added, at most
    speedup: Mapping[float, float]  # over exact training: by all workers, or by one alone if that is faster


def build_map(settings: Mapping[str, str], excess: dict[str, float], exact: str) -> list[Place]:
    """All places. `excess` is the upper end of each method's measured loss above exact training's.

    Over slow links exact training is fastest on one worker alone, which has all samples to itself.
    """
    seat = Seat(rank=0, workers=WORKERS, steps=STEPS)
    anatomies = {size: decoder(*shape, SEQ) for size, shape in SIZES.items()}
    runs = {
        (name, size): steps_of(parse_algorithm(sized(text, size)), anatomy, seat, SEQUENCES)
        for name, text in settings.items()
        for size, anatomy in anatomies.items()
    }
    by_itself = replace(seat, workers=1)
    for size, anatomy in anatomies.items():
        runs[ALONE, size] = steps_of(parse_algorithm(exact), anatomy, by_itself, WORKERS * SEQUENCES)
    found = []
    for size, bandwidth, latency in product(SIZES, BANDWIDTHS, LATENCIES):
        link = Link(name="", bytes_per_s=BANDWIDTHS[bandwidth], latency_s=LATENCIES[latency])
        times = {
            name: sum(each.seconds(FLOPS_PER_S, link) for each in runs[name, size]) / STEPS
            for name in (ALONE, *settings)
        }
        choice = {most: _fastest(times, excess | {exact: 0.0, ALONE: 0.0}, most) for most in TOLERANCES}
        best_s = min(times[exact], times[ALONE])
        speedup = {most: best_s / times[name] for most, name in choice.items()}
        found.append(
            Place(
                size=size, bandwidth=bandwidth, latency=latency, step_s=times, choice=choice, speedup=speedup
            )
        )
    return found


def sized(text: str, size: str) -> str:
    """A setting that was measured, for a larger model: ranks are the same share of the hidden size."""
    words = [
        f"rank={int(word.removeprefix('rank=')) * SIZES[size][1] // HIDDEN['transformer']}"
        if word.startswith("rank=")
        else word
        for word in text.split()
    ]
    return " ".join(words)


def _fastest(times: Mapping[str, float], excess: Mapping[str, float], most: float) -> str:
    allowed = [name for name in times if excess[name] <= most]
    return min(allowed, key=lambda name: times[name])


def memory_bytes(settings: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """Weights, gradients and Adam's moments of a worker in fp32, by method and size of model."""
    found: dict[str, dict[str, float]] = {}
    for name, text in settings.items():
        for size, shape in SIZES.items():
            held = parse_algorithm(sized(text, size)).memory(decoder(*shape, SEQ), WORKERS)
            numbers = held.weights + held.gradients + 2 * held.moments + held.beside
            found.setdefault(name, {})[size] = FLOAT_BYTES * numbers
    return found


def chosen(places: Sequence[Place], most: float) -> dict[str, int]:
    """How often each method is the choice."""
    found: dict[str, int] = {}
    for place in places:
        found[place.choice[most]] = found.get(place.choice[most], 0) + 1
    return dict(sorted(found.items(), key=lambda each: -each[1]))
