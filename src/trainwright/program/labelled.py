"""Arrays that know which places of a whole tensor they hold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """Values of some places of a tensor: along each dim, in order, which ones."""

    values: Array
    at: Mapping[str, Places]

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of its dims, in order."""
        return tuple(self.at)


def whole(values: Any, dims: Sequence[str]) -> Part:
    """A tensor of which every place is there."""
    array = np.asarray(values)
    sizes = zip(dims, array.shape, strict=True)
    return Part(values=array, at={dim: np.arange(size) for dim, size in sizes})


def renamed(part: Part, dims: Sequence[str]) -> Part:
    """The same part under other names of its dims, position by position."""
    return Part(values=part.values, at=dict(zip(dims, part.at.values(), strict=True)))


def cut(part: Part, at: Mapping[str, Places]) -> Part:
    """The wanted places of a part, along those of its dims that `at` names; all of them must be there."""
    values, kept = part.values, dict(part.at)
    for axis, (dim, here) in enumerate(part.at.items()):
        wanted = at.get(dim, here)
        if wanted is here or np.array_equal(wanted, here):
            continue
        assert np.isin(wanted, here).all(), f"{dim}: {wanted} is not in {here}"
        order = np.argsort(here)
        found = order[np.searchsorted(here[order], wanted)]
        values = np.take(values, found, axis=axis)
        kept[dim] = wanted
    return Part(values=values, at=kept)


def spread(part: Part, at: Mapping[str, Places]) -> Part:
    """The part with zeros at all further places that `at` names."""
    wanted = {dim: at.get(dim, here) for dim, here in part.at.items()}
    values = np.zeros([len(places) for places in wanted.values()])
    positions = [np.searchsorted(wanted[dim], here) for dim, here in part.at.items()]
    for dim, found in zip(part.at, positions, strict=True):
        assert np.array_equal(wanted[dim][found], part.at[dim]), (
            f"{dim}: {part.at[dim]} is not in {wanted[dim]}"
        )
    values[np.ix_(*positions)] = part.values
    return Part(values=values, at=wanted)


def contract(parts: Sequence[Part], dims: Sequence[str]) -> Part:
    """The product of parts, summed over all dims but `dims`; dims of one name must hold the same places."""
    at: dict[str, Places] = {}
    for part in parts:
        for dim, places in part.at.items():
            known = at.setdefault(dim, places)
            assert np.array_equal(known, places), f"{dim}: {known} meets {places}"
    letters = {dim: chr(ord("a") + number) for number, dim in enumerate(at)}
    read = ",".join("".join(letters[dim] for dim in part.at) for part in parts)
    written = "".join(letters[dim] for dim in dims)
    values = np.einsum(f"{read}->{written}", *(part.values for part in parts))
    return Part(values=np.asarray(values, dtype=float), at={dim: at[dim] for dim in dims})
