"""The time of a collective from what was measured: a curve over its bytes for each number of members."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.profile import Collective

Array = NDArray[np.float64]
_AS = {
    "reduce_scatter": "all_gather",
    "broadcast": "all_gather",
    "all_to_all": "all_gather",
    "send": "all_gather",
}


@dataclass(frozen=True, eq=False, slots=True)
class CollectiveTable:
    """Measured times by kind, members and bytes."""

    curves: Mapping[tuple[str, int], tuple[Array, Array]]  # logarithms of bytes, and of seconds

    def knows(self, kind: str) -> bool:
        """Whether anything like it was measured."""
        return any(name in (kind, _AS.get(kind)) for name, _ in self.curves)

    def seconds(self, kind: str, members: Array, size_bytes: Array) -> Array:
        """The time at a size, between those measured on a logarithmic scale.

        Smaller than all measured ones is as the smallest; larger ones, in proportion to the largest. Of more
        members than were measured a ring has so many more hops, and each byte passes (n-1)/n links.
        """
        name = kind if any(each == kind for each, _ in self.curves) else _AS[kind]
        counts = np.array(sorted(n for each, n in self.curves if each == name), dtype=float)
        members, size_bytes = np.broadcast_arrays(
            np.asarray(members, dtype=float), np.asarray(size_bytes, dtype=float)
        )
        result = np.zeros(members.shape)
        for n in np.unique(members):
            if n > 1:
                at = members == n
                result[at] = self._at(name, float(n), counts, size_bytes[at])
        return result

    def _at(self, name: str, n: float, counts: Array, size_bytes: Array) -> Array:
        below, above = counts[counts <= n], counts[counts >= n]
        if not below.size:
            return self._of(name, int(above[0]), size_bytes)
        low = int(below[-1])
        low_s = self._of(name, low, size_bytes)
        if low == n:
            return low_s
        if above.size:
            high = int(above[0])
            share = np.log(n / low) / np.log(high / low)
            return np.asarray(low_s ** (1.0 - share) * self._of(name, high, size_bytes) ** share)
        hop_s = self._of(name, low, np.zeros(1))
        more = ((n - 1.0) / n) / ((low - 1.0) / low)
        return np.asarray(hop_s * (n - 1.0) / (low - 1.0) + np.maximum(low_s - hop_s, 0.0) * more)

    def _of(self, name: str, members: int, size_bytes: Array) -> Array:
        sizes, seconds = self.curves[name, members]
        found = np.exp(np.interp(np.log(np.maximum(size_bytes, 1.0)), sizes, seconds))
        return np.asarray(found * np.maximum(size_bytes / np.exp(sizes[-1]), 1.0))


def build_table(collectives: Sequence[Collective]) -> CollectiveTable | None:
    """The table of measured collectives; None if there are none."""
    curves: dict[tuple[str, int], tuple[Array, Array]] = {}
    for kind, members in sorted({(each.kind, each.members) for each in collectives}):
        found = sorted(
            (each.size_bytes, each.seconds)
            for each in collectives
            if (each.kind, each.members) == (kind, members)
        )
        sizes, seconds = np.array(found).T
        # What takes less time although it is larger was disturbed when it was smaller.
        curves[kind, members] = (np.log(sizes), np.log(np.minimum.accumulate(seconds[::-1])[::-1]))
    return CollectiveTable(curves) if curves else None
