"""Where the ranks of a stage stand on the levels of the network, for many strategies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.collective import Link, Span, joint_span, span
from trainwright.plan.mapping import AXES, axis_strides

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """The axes of some strategies, and how far apart neighbours along each are on the network."""

    links: Sequence[Link]
    sizes: Mapping[str, Array]
    order: Ints
    strides: Mapping[str, Array] | None  # None: as ever, tp innermost, then cp, dp and pp

    def span(self, size: Array, start: Array) -> Span:
        """Where groups of `size` ranks of a stage lie that are `start` apart.

        Ranks of a stage are numbered with tp innermost, then cp, then dp, wherever they stand.
        """
        plain = span(self.links, size, start)
        if self.strides is None:
            return plain
        return self._chosen(plain, joint_span(self.links, self._parts(size, start)))

    def span_at_ends(self, size: Array, start: Array) -> Span:
        """Where such groups lie together with their twins at the other end of the pipeline."""
        twins = (np.full(np.shape(size), 2.0), self.between_ends())
        plain = joint_span(self.links, [(size, start), twins])
        if self.strides is None:
            return plain
        return self._chosen(plain, joint_span(self.links, [*self._parts(size, start), twins]))

    def _parts(self, size: Array, start: Array) -> list[tuple[Array, Array]]:
        """Sizes and strides along each axis of a stage."""
        assert self.strides is not None
        parts, inside = [], np.ones(1)
        for axis in AXES[:3]:
            first = np.clip(start / inside, 1.0, self.sizes[axis])
            last = np.clip(start * size / inside, 1.0, self.sizes[axis])
            parts.append((last / first, self.strides[axis] * first))
            inside = inside * self.sizes[axis]
        return parts

    def _chosen(self, plain: Span, mapped: Span) -> Span:
        """By strategy, what holds of its order."""
        usual = self.order == 0
        return Span(
            size=plain.size,
            below=tuple(np.where(usual, a, b) for a, b in zip(plain.below, mapped.below, strict=True)),
            fan=tuple(np.where(usual, a, b) for a, b in zip(plain.fan, mapped.fan, strict=True)),
        )

    def to_next_stage(self) -> Array:
        """How far away the next stage is."""
        usual = self.sizes["tp"] * self.sizes["cp"] * self.sizes["dp"]
        return usual if self.strides is None else np.where(self.order == 0, usual, self.strides["pp"])

    def between_ends(self) -> Array:
        """How far the ends of a pipeline are from each other: some of its stages stand on both sides of every
        border between them.
        """
        return self.to_next_stage() * np.maximum(self.sizes["pp"] - 1.0, 1.0)


def build_ranks(links: Sequence[Link], sizes: Mapping[str, Array], order: Ints) -> Ranks:
    """The ranks of strategies with axes of these sizes, mapped in these orders."""
    known = {axis: np.asarray(sizes[axis], dtype=float) for axis in AXES}
    return Ranks(
        links=links, sizes=known, order=order, strides=axis_strides(known, order) if order.any() else None
    )
