"""The part of the page on accuracy that is about collectives measured alone."""

from collections.abc import Iterable, Sequence

import numpy as np

from trainwright.cost.fabric import Fabric
from trainwright.validate.collective_fit import SPREAD, Judged
from trainwright.validate.collective_rows import Measured

_HEAD = """## Collectives

Constants of links are fitted to collectives that were measured alone (nccl-tests and the like), of 4 MB and
more, and held fixed in the fit to runs; no training run has a say in them. *In* and *out* as above: out is by
constants fitted without the source of a collective, and a fabric that only one source has is then predicted
by what stands for unmeasured ones, the median of the NVLinks inside a node, RDMA outside. A fabric counts
those collectives that do not leave it.

"""
_SHOWN = (
    ("share", "share of bandwidth", 1.0), ("reducing", "reducing", 1.0), ("start_s", "start, µs", 1e6),
    ("latency_s", "per doubling, µs", 1e6), ("hop_s", "hop, µs", 1e6),
)  # fmt: skip


def render_collectives(judged: Judged) -> str:
    """Errors by fabric and by source, and the constants."""
    assert {name for name, _, _ in _SHOWN} == set(SPREAD)
    heads = (
        "collectives",
        "sources",
        "median, in-sample",
        "bias, in-sample",
        "median, held out",
        "bias, held out",
    )
    parts = [
        _table(("fabric", *heads), _errors(judged, [row.fabric for row in judged.rows])),
        _table(("source", *heads), _errors(judged, [row.source for row in judged.rows])),
        "What was found. A ring reaches *share* of the datasheet's bandwidth; switches that reduce work at "
        "*reducing* of that; every collective pays *start* once, trees *per doubling* and way (the level's "
        "own latency comes on top), rings per *hop*.",
        _table(("fabric", "collectives", *(head for _, head, _ in _SHOWN)), _constants(judged)),
    ]
    return _HEAD + "\n\n".join(parts)


def _errors(judged: Judged, names: Sequence[str]) -> Iterable[Sequence[str]]:
    truth = np.array([row.time_s for row in judged.rows])
    for name in sorted(set(names)):
        own = np.array([each == name for each in names])
        cells = [name, str(own.sum()), str(len(_sources(judged.rows, own.tolist())))]
        for predicted in (judged.inside_s, judged.outside_s):
            off = predicted[own] / truth[own] - 1.0
            cells += [f"{np.median(np.abs(off)):.1%}", f"{np.median(off):+.1%}"]
        yield cells


def _sources(rows: Sequence[Measured], own: Sequence[bool]) -> set[str]:
    return {row.source for row, mine in zip(rows, own, strict=True) if mine}


def _constants(judged: Judged) -> Iterable[Sequence[str]]:
    for name, fabric in judged.fabrics.items():
        yield (name, str(fabric.rows) if fabric.rows else "default", *_numbers(fabric))


def _numbers(fabric: Fabric) -> Iterable[str]:
    return (f"{times * getattr(fabric, name):.3g}" for name, _, times in _SHOWN)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])
