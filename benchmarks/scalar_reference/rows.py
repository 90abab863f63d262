"""Pipeline rows: the layers of each, chunk by chunk, written out."""

from dataclasses import dataclass
from math import ceil

from scalar_reference.blocks import ModelWork
from trainwright.estimate.types import Job
from trainwright.plan.strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One pipeline rank: its place, its chunks' layers, the ends of the model that it has."""

    place: int
    chunks: tuple[int, ...]
    is_first: bool
    is_last: bool

    @property
    def layers(self) -> int:
        """Of all its chunks."""
        return sum(self.chunks)


def build_rows(job: Job, strategy: Strategy, work: ModelWork) -> tuple[Row, ...]:
    """The rows of a pipeline; one that is alone has both ends. Stages that are cut by work have no chunks."""
    pp, vpp = strategy.pp, strategy.vpp
    if job.stack.balanced_stages:
        head_layers = work.last.dense_parameters / work.layer.dense_parameters
        chunks = [[count] for count in balanced_layers(work.layers, pp, head_layers)]
    elif counts_ends_as_layers(work.layers, pp, vpp):
        each = (work.layers + 2) // (pp * vpp)
        chunks = [[each] * vpp for _ in range(pp)]
        chunks[0][0] -= 1
        chunks[-1][-1] -= 1
    else:
        chunks = [
            [count // vpp + (at < count % vpp) for at in range(vpp)] for count in even_layers(work.layers, pp)
        ]
    return tuple(
        Row(place=place, chunks=tuple(own), is_first=place == 0, is_last=place == pp - 1)
        for place, own in enumerate(chunks)
    )


def counts_ends_as_layers(layers: int, pp: int, vpp: int) -> bool:
    """Whether chunks are even with embedding and head in place of a layer each, and only so."""
    return pp > 2 and layers % (pp * vpp) > 0 and (layers + 2) % (pp * vpp) == 0


def even_layers(layers: int, pp: int) -> list[int]:
    """Layers by row: what is left over goes to rows between the ends, then the first, then the last."""
    counts = [layers // pp] * pp
    for place in [*range(1, pp - 1), 0, pp - 1][: layers % pp]:
        counts[place] += 1
    return counts


def balanced_layers(layers: int, pp: int, head_layers: float) -> list[int]:
    """Layers by row if the head counts as `head_layers`: full rows first, the rest after them."""
    full = min(ceil((layers + head_layers) / pp - 1e-9), layers)
    return [min(full, max(layers - full * place, 0)) for place in range(pp)]


def in_flight(strategy: Strategy, row: Row, microbatches: float) -> float:
    """Microbatches whose activations a row holds at once, in chunks if there are several.

    Those of the forwards ahead of its first backward, and one more: p−1−j forwards on row j of p, with v
    chunks 2(p−1−j) + (v−1)p. With GPipe, all of them.
    """
    behind = strategy.pp - 1 - row.place
    if strategy.schedule == "gpipe":
        return microbatches
    if strategy.vpp == 1:
        return min(behind + 1, microbatches)
    return min((2 * behind + (strategy.vpp - 1) * strategy.pp + 1) / strategy.vpp, microbatches)


def deferred_wgrads(strategy: Strategy, row: Row, microbatches: float) -> float:
    """Microbatches whose backward is done but for weight gradients: ZB-H1 defers those of j on row j."""
    if strategy.schedule != "zb":
        return 0.0
    return min(row.place, microbatches - in_flight(strategy, row, microbatches))
