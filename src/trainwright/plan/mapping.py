"""Where the ranks of parallel axes stand on the network: which axis is innermost, which next."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import permutations
from math import prod

import numpy as np
from numpy.typing import NDArray

from trainwright.errors import BadInput

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
AXES = ("tp", "cp", "dp", "pp")  # innermost first, as devices are numbered
ORDERS = tuple("-".join(each) for each in permutations(AXES))  # the first is the usual one
Sizes = tuple[tuple[str, int], ...]  # axes with their sizes, innermost on the network first


def canonical_order(text: str, sizes: Mapping[str, int]) -> str:
    """The order of all axes that a text means; axes of one rank stand anywhere, so they are put first.

    An order that places devices as the usual one does is the usual one.
    """
    named = text.split("-")
    wide = [axis for axis in AXES if sizes[axis] > 1]
    if len(set(named)) != len(named) or not set(wide) <= set(named) <= set(AXES):
        raise BadInput(
            "strategy order", text, f"does not name each of {', '.join(wide)} once", "write it like tp-pp-dp"
        )
    shown = [axis for axis in named if sizes[axis] > 1]
    if shown == wide:
        return ORDERS[0]
    return "-".join([*(axis for axis in AXES if sizes[axis] == 1), *shown])


def axis_strides(sizes: Mapping[str, Array], order: Ints) -> dict[str, Array]:
    """How far apart on the network neighbours along each axis are; `order` are indices into `ORDERS`."""
    found = {axis: np.ones(len(order)) for axis in AXES}
    for code in np.flatnonzero(np.bincount(order, minlength=len(ORDERS))):
        rows, stride = order == code, np.ones(len(order))
        for axis in ORDERS[code].split("-"):
            found[axis] = np.where(rows, stride, found[axis])
            stride = stride * sizes[axis]
    return found


@lru_cache(maxsize=64)
def positions(mapping: Sizes) -> Ints:
    """Where each device stands on the network; devices are numbered with tp innermost, then cp, dp and pp."""
    known = dict(mapping)
    numbered = [axis for axis in reversed(AXES) if axis in known]
    count = prod(known.values())
    grid = np.arange(count).reshape([size for _, size in reversed(mapping)])  # by place, outermost first
    outward = [axis for axis, _ in reversed(mapping)]
    return np.ascontiguousarray(grid.transpose([outward.index(axis) for axis in numbered])).ravel()


def check_mapping(mapping: Sequence[tuple[str, int]], devices: int) -> None:
    """Raise unless a mapping has known axes, each once, that make up all devices."""
    names = [axis for axis, _ in mapping]
    if len(set(names)) != len(names) or not set(names) <= set(AXES):
        raise BadInput("plan mapping", " ".join(names), f"is not made of {', '.join(AXES)}", "name each once")
    if mapping and prod(size for _, size in mapping) != devices:
        text = " ".join(f"{axis}{size}" for axis, size in mapping)
        raise BadInput("plan mapping", text, f"is not of {devices} devices", "let sizes multiply to them")
