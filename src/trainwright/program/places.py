"""Classes of devices that do the same work: one of each is enough to simulate."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from trainwright.program.placed import Placed


@dataclass(slots=True)
class Places:
    """Which devices make up each place, and which places a group of devices covers."""

    devices: tuple[tuple[int, ...], ...]
    of: dict[int, int]
    _covers: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def covered(self, devices: tuple[int, ...]) -> tuple[int, ...]:
        """The places that some devices make up."""
        key = id(devices)
        if key not in self._covers:
            self._covers[key] = tuple(sorted({self.of[device] for device in devices}))
            self._kept.append(devices)
        return self._covers[key]

    _kept: list[tuple[int, ...]] = field(default_factory=list)  # so that an id means one thing


def find_places(placed: Iterable[Placed], orders: Sequence[tuple[int, ...]]) -> Places:
    """Devices that are in the same groups and have equal parts and orders, together."""
    groups: dict[tuple[int, ...], None] = {}
    alone: set[int] = set()
    for each in placed:
        groups[each.mesh.devices] = None
        if each.uneven:
            alone.update(each.mesh.devices)
    groups |= dict.fromkeys(orders)
    member: dict[int, list[int]] = {}
    for number, devices in enumerate(groups):
        for device in devices:
            member.setdefault(device, []).append(number)
    found: dict[tuple[int, ...], list[int]] = {}
    for device in sorted(member):
        key = (*member[device], -1 - device) if device in alone else tuple(member[device])
        found.setdefault(key, []).append(device)
    classes = sorted(found.values())
    return Places(
        devices=tuple(tuple(each) for each in classes),
        of={device: number for number, each in enumerate(classes) for device in each},
    )
