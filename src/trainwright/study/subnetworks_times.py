"""When the runs of the study of subnetworks would have ended on other links."""

from dataclasses import dataclass

from trainwright.algorithm.experiment import BATCHES
from trainwright.algorithm.protocol import Seat
from trainwright.algorithm.registry import parse_algorithm
from trainwright.study.links import LINKS, Link, Step, steps_of
from trainwright.study.subnetworks import Result

FLOPS_PER_S = 50e9  # that a worker sustains: one core of a commodity node


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """The predicted time of each mark of a run, on one link."""

    result: Result
    link: Link
    seconds: tuple[float, ...]


def clocks(result: Result) -> list[Clock]:
    """One for every link."""
    steps, at = _steps(result), [mark.step for mark in result.curves[0].marks]
    found = []
    for link in LINKS:
        ends, now = {}, 0.0
        for number, step in enumerate(steps, start=1):
            now += step.seconds(FLOPS_PER_S, link)
            ends[number] = now
        found.append(Clock(result=result, link=link, seconds=tuple(ends[each] for each in at)))
    return found


def _steps(result: Result) -> list[Step]:
    """What a worker did; those of an ensemble are alone."""
    from trainwright.algorithm.rehearse import build_network

    setting, method = result.setting, result.method
    anatomy = build_network(setting.network, method.share, setting.given).anatomy
    samples = BATCHES[setting.network] // setting.workers
    workers = 1 if method.kind == "ensemble" else setting.workers
    seat = Seat(rank=0, workers=workers, steps=setting.steps)
    return steps_of(parse_algorithm(method.setting(setting.steps)), anatomy, seat, samples)
