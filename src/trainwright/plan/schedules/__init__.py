"""Pipeline schedules by name: an extension is one file, and one line here."""

from collections.abc import Callable, Mapping
from inspect import signature

from trainwright.errors import UnknownName
from trainwright.plan.schedules.check import check, inputs
from trainwright.plan.schedules.chimera import chimera
from trainwright.plan.schedules.dualpipe import dualpipe
from trainwright.plan.schedules.dualpipe_v import dualpipe_v
from trainwright.plan.schedules.gpipe import gpipe
from trainwright.plan.schedules.interlaced import interlaced
from trainwright.plan.schedules.interleaved import interleaved
from trainwright.plan.schedules.looped_bfs import looped_bfs
from trainwright.plan.schedules.one_f_one_b import one_f_one_b
from trainwright.plan.schedules.three_f_one_b import three_f_one_b
from trainwright.plan.schedules.types import EVERY_ROW, Schedule
from trainwright.plan.schedules.zb_h1 import zb_h1
from trainwright.plan.schedules.zb_v import zb_v

BY_NAME: Mapping[str, Callable[..., Schedule]] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved": interleaved,
    "looped-bfs": looped_bfs,
    "zb-h1": zb_h1,
    "zb-v": zb_v,
    "dualpipe": dualpipe,
    "dualpipe-v": dualpipe_v,
    "chimera": chimera,
    "interlaced": interlaced,
    "3f1b": three_f_one_b,
}


def build_schedule(name: str, pp: int, microbatches: int, **options: float) -> Schedule:
    """The schedule of a name for p rows and m microbatches; `options` are those of its function."""
    if name not in BY_NAME:
        raise UnknownName("schedule", name, BY_NAME)
    known = list(signature(BY_NAME[name]).parameters)[2:]
    for option in options:
        if option not in known:
            raise UnknownName(f'schedule "{name}" option', option, known or ["none"])
    return BY_NAME[name](pp, microbatches, **options)


__all__ = ["BY_NAME", "EVERY_ROW", "Schedule", "build_schedule", "check", "inputs"]
