"""The values of one microbatch, as devices hold them while a program is carried out."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from trainwright.plan.rules import LINKED
from trainwright.program.labelled import Array, Part, Places, renamed, spread
from trainwright.program.layout import region
from trainwright.program.lower import Route
from trainwright.program.step import GRADIENT, Value

_MARKS = re.compile(r"[#~^@]")  # what a name goes on with where it is a part, done again, or from the host


def base_name(name: str) -> str:
    """The name of the value that a part is of, or that was made again."""
    return _MARKS.split(name)[0]


def part_name(name: str) -> str:
    """The name of a value or of its serial part, made again or not; of a gradient, that of its value."""
    return name.removeprefix(GRADIENT).rstrip("~@")


@dataclass(slots=True, kw_only=True)
class Shards:
    """Arrays by value and device. A value that is written again before it is read is the sum of both."""

    route: Route
    values: dict[Value, dict[int, Array]] = field(default_factory=dict)
    seen: set[Value] = field(default_factory=set)  # read since they were written
    orders: dict[str, tuple[str, Places]] = field(
        default_factory=dict
    )  # of serial parts: the places they have

    def read(self, value: Value, device: int) -> Part:
        """What a device holds of a value, with its places."""
        return Part(values=self.array(value, device), at=self.places(value, device))

    def array(self, value: Value, device: int) -> Array:
        """What a device holds of a value: what was written so, and what lies the same in another layout."""
        found = []
        at: Value | None = value
        while at is not None:
            if device in self.values.get(at, {}):
                found.append(self.values[at][device])
                self.seen.add(at)
            at = self.route.aliases.get(at)
        assert found, f"device {device} reads {value.name} {value.layout} before it is made"
        return np.asarray(sum(found[1:], found[0]))

    def write(self, value: Value, device: int, array: Array) -> None:
        """Let a device hold a value, or more of it."""
        if value in self.seen:
            self.seen.discard(value)
            self.values[value] = {}
        held = self.values.setdefault(value, {})
        held[device] = held[device] + array if device in held else array

    def sizes(self, name: str) -> Mapping[str, int]:
        """The dims of a value, or of a serial part of it, under the names that it was written with."""
        return self.route.shapes[name.removeprefix(GRADIENT)].dims

    def places(self, value: Value, device: int) -> dict[str, Places]:
        """Which places of a tensor a device holds."""
        rank = value.layout.mesh.devices.index(device)
        at = {
            dim: np.arange(*ends) for dim, ends in region(value.layout, self.sizes(value.name), rank).items()
        }
        if part_name(value.name) in self.orders:
            dim, order = self.orders[part_name(value.name)]
            at[dim] = order[at[dim]]
        return at

    def fitted(self, value: Value, device: int, part: Part) -> Array:
        """A result as the value's layout says: its places, zeros where another serial part has them."""
        part = renamed(part, tuple(self.sizes(value.name)))
        if "#" in value.name and not value.name.startswith(GRADIENT):
            self._remember(value, device, part)
        return spread(part, self.places(value, device)).values

    def _remember(self, value: Value, device: int, part: Part) -> None:
        """Which places a serial part has, from what this device made of it."""
        name, sizes = part_name(value.name), self.sizes(value.name)
        split = name.partition("#")[2].partition(".")[0]
        dim = next(each for each in (split, *LINKED.get(split, ())) if each in sizes)
        low, high = region(value.layout, sizes, value.layout.mesh.devices.index(device))[dim]
        _, order = self.orders.setdefault(name, (dim, np.full(sizes[dim], -1)))
        order[low:high] = part.at[dim]
