"""Times of short work that all processes do at once: warm-up, median and spread."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from time import perf_counter

import torch
import torch.distributed as dist

_LEAST_TURNS, _MOST_TURNS = 5, 60
_ENOUGH_S = 0.08  # of turns that are counted
_WARM_TURNS = 2
_NOTHING_S = 5e-7


@dataclass(frozen=True, slots=True)
class Timed:
    """The median time, and half the width of the middle half of all as a share of it."""

    seconds: float
    spread: float


def timed(run: Callable[[int], object], device: torch.device, least: int = _LEAST_TURNS) -> Timed:
    """The time of one turn, as the mean over processes of their medians; `run` is given the turn's number.

    Every process must call it: they begin together, take as many turns as the first one finds enough, and so
    have what is left to each where they share cores, memory or links.
    """
    for turn in range(_WARM_TURNS):
        run(turn)
    pilot_s = _turn_s(run, _WARM_TURNS, device)
    turns = _first(min(max(int(_ENOUGH_S / max(pilot_s, 1e-7)), least), max(_MOST_TURNS, least)))
    if dist.is_initialized():
        dist.barrier()
    found = sorted(_turn_s(run, turn, device) for turn in range(turns))
    low, _, high = quantiles(found, n=4)
    return Timed(*_means((median(found), (high - low) / 2.0 / median(found))))


def _turn_s(run: Callable[[int], object], turn: int, device: torch.device) -> float:
    start_s = perf_counter()
    run(turn)
    if device.type != "cpu":
        torch.accelerator.synchronize()
    return perf_counter() - start_s


def _first(value: int) -> int:
    """The first process's number, for all."""
    if not dist.is_initialized():
        return value
    told = [value]
    dist.broadcast_object_list(told)
    return told[0]


def _means(values: Sequence[float]) -> list[float]:
    if not dist.is_initialized():
        return list(values)
    found: list[Sequence[float]] = [()] * dist.get_world_size()
    dist.all_gather_object(found, tuple(values))
    busy = [each for each in found if each[0] > _NOTHING_S]  # not those that had nothing to do
    return [sum(column) / len(column) for column in zip(*(busy or found), strict=True)]
