"""Catalog entries: a device or network as a TOML table with units, made into an object."""

from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Any, TypeVar

from trainwright.cluster.figure_sources import build_figure_sources
from trainwright.cluster.sites import shared_rate
from trainwright.cluster.types import (
    ACCESSES,
    DTYPES,
    FABRICS,
    TOPOLOGIES,
    Device,
    Level,
    MemoryTier,
    Network,
)
from trainwright.errors import BadInput, UnknownName
from trainwright.units import parse_quantity

Table = Mapping[str, Any]
T = TypeVar("T")

DEVICE_KEYS = (
    "name", "aliases", "family", "compute_units", "buffer", "idle_power", "peak_power",
    "price_per_hour", "network", "source", "peak", "memory", "sources",
)  # fmt: skip
NETWORK_KEYS = ("name", "aliases", "host_power", "host_bandwidth", "source", "level")
TIER_KEYS = (
    "name", "capacity", "usable_memory", "bandwidth", "latency", "access", "shared", "update_bandwidth",
)  # fmt: skip
_MOST_USABLE = 1.02  # of the nominal size: Google rounds 95.74 GiB of a TPU v5p to 95
LEVEL_KEYS = (
    "name", "size", "bandwidth", "latency", "topology", "in_network_reduction", "oversubscription",
    "algorithms", "fabric", "group_bandwidth",
)  # fmt: skip


def build_device(table: Table, thing: str) -> Device:
    """The device that a table of `DEVICE_KEYS` describes; errors name `thing`."""
    check_keys(table, DEVICE_KEYS, thing)
    peak = _required(table, "peak", thing, _table)
    check_keys(peak, DTYPES, f"{thing} peak")
    idle_w, peak_w = _quantity(table, "idle_power", "W", thing), _positive(table, "peak_power", "W", thing)
    if idle_w >= peak_w:
        raise BadInput(f"{thing} idle_power", table["idle_power"], "is not below peak_power", "lower it")
    memory = tuple(_build_tier(tier, thing) for tier in _required(table, "memory", thing, _tables))
    if memory and (memory[0].shared != "device" or memory[0].access != "copy"):
        raise BadInput(
            f"{thing} memory",
            memory[0].name,
            "the first tier is the device's own",
            "leave out access and shared",
        )
    for tier in memory[1:]:
        if tier.usable_fraction is not None:
            raise BadInput(
                f"{thing} memory {tier.name}", "usable_memory", "is for the first tier, the device's own",
                "leave it out",
            )  # fmt: skip
    build_figure_sources(table, thing)  # checked here; `load_figure_sources` reads them
    return Device(
        name=_required(table, "name", thing, _text),
        family=_required(table, "family", thing, _text),
        peak_flops_per_s={dtype: _positive(peak, dtype, "flops/s", f"{thing} peak") for dtype in peak},
        memory=memory,
        buffer_bytes=_positive(table, "buffer", "bytes", thing),
        compute_units=_required(table, "compute_units", thing, whole_number),
        idle_w=idle_w,
        peak_w=peak_w,
        price_per_hour=_quantity(table, "price_per_hour", "$/h", thing),
        network=_required(table, "network", thing, _text),
        source=_required(table, "source", thing, _text),
    )


def build_network(table: Table, thing: str) -> Network:
    """The network that a table of `NETWORK_KEYS` describes; errors name `thing`."""
    check_keys(table, NETWORK_KEYS, thing)
    levels = _build_levels(_required(table, "level", thing, _tables), thing)
    if not levels:
        raise BadInput(thing, "level", "needs at least one level", "add [[level]]")
    for level in levels[:-1]:
        if level.size == 0:
            raise BadInput(f"{thing} level", level.name, "only the outermost may be open", "give it a size")
    return Network(
        name=_required(table, "name", thing, _text),
        levels=levels,
        host_w=_quantity(table, "host_power", "W", thing),
        host_bytes_per_s=_positive(table, "host_bandwidth", "bytes/s", thing),
        source=_required(table, "source", thing, _text),
    )


def merge_entry(base: Table, changes: Table, thing: str) -> dict[str, Any]:
    """`base` with `changes` laid over it: tables by key, lists of named tables by name, the rest replaced."""
    merged = dict(base)
    for key, value in changes.items():
        old = base.get(key)
        if isinstance(old, dict):
            merged[key] = old | _table(value, f"{thing} {key}")
        elif isinstance(old, list) and key in ("memory", "level"):
            merged[key] = _merge_named(old, _tables(value, f"{thing} {key}"), f"{thing} {key}")
        else:
            merged[key] = value
    return merged


def check_keys(table: Table, known: Iterable[str], thing: str) -> None:
    """Every key of `table` is a known one."""
    names = tuple(known)
    for key in table:
        if key not in names:
            raise UnknownName(f"{thing} key", key, names)


def whole_number(value: object, thing: str, most: int = 10**9) -> int:
    """`value` as a count of at least one, and `most` at most."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadInput(thing, value, "is not a whole number above zero", "write it like 8")
    if value > most:
        raise BadInput(thing, value, f"is more than {most:,}", "correct it")
    return value


def _build_tier(table: Table, thing: str) -> MemoryTier:
    thing = f"{thing} memory"
    check_keys(table, TIER_KEYS, thing)
    access = table.get("access", "copy")
    if access not in ACCESSES:
        raise UnknownName(f"{thing} access", str(access), ACCESSES)
    return MemoryTier(
        name=_required(table, "name", thing, _text),
        capacity_bytes=_positive(table, "capacity", "bytes", thing),
        bytes_per_s=_positive(table, "bandwidth", "bytes/s", thing),
        latency_s=_quantity(table, "latency", "s", thing) if "latency" in table else 0.0,
        update_bytes_per_s=_positive(table, "update_bandwidth", "bytes/s", thing)
        if "update_bandwidth" in table
        else 0.0,
        access=access,
        shared=_text(table.get("shared", "device"), f"{thing} shared"),
        usable_fraction=_usable_fraction(table, thing) if "usable_memory" in table else None,
    )


def _usable_fraction(table: Table, thing: str) -> float:
    share = _positive(table, "usable_memory", "bytes", thing) / _positive(table, "capacity", "bytes", thing)
    if share > _MOST_USABLE:
        rule = f"is more than the capacity {table['capacity']}"
        raise BadInput(
            f"{thing} usable_memory", table["usable_memory"], rule, "state what the runtime reports"
        )
    return share


def _build_levels(tables: Iterable[Table], thing: str) -> tuple[Level, ...]:
    levels: list[Level] = []
    for table in tables:
        levels.append(_build_level(table, thing, prod(each.size for each in levels)))
    return tuple(levels)


def _level_rate(table: Table, thing: str, inside: int) -> float:
    """A device's own rate, or its part of the link that the `inside` devices of a group share."""
    if "group_bandwidth" not in table:
        return _positive(table, "bandwidth", "bytes/s", thing)
    if "bandwidth" in table:
        rule = "is stated beside bandwidth, which is per device"
        raise BadInput(f"{thing} group_bandwidth", table["group_bandwidth"], rule, "leave one out")
    if not inside:
        rule = "joins groups of the level below, whose size is open"
        raise BadInput(f"{thing} group_bandwidth", table["group_bandwidth"], rule, "give that level a size")
    return shared_rate(table["group_bandwidth"], inside, f"{thing} group_bandwidth")


def _build_level(table: Table, thing: str, inside: int) -> Level:
    thing = f"{thing} level"
    check_keys(table, LEVEL_KEYS, thing)
    topology = table.get("topology", "switch")
    if topology not in TOPOLOGIES:
        raise UnknownName(f"{thing} topology", str(topology), TOPOLOGIES)
    reduces = table.get("in_network_reduction", False)
    if not isinstance(reduces, bool):
        raise BadInput(
            f"{thing} in_network_reduction", reduces, "is neither true nor false", "write true or false"
        )
    fabric = table.get("fabric", "")
    if fabric not in ("", *FABRICS):
        raise UnknownName(f"{thing} fabric", str(fabric), FABRICS)
    size = table.get("size", 0)
    return Level(
        name=_required(table, "name", thing, _text),
        size=whole_number(size, f"{thing} size") if size != 0 else 0,
        bytes_per_s=_level_rate(table, thing, inside),
        latency_s=_quantity(table, "latency", "s", thing),
        topology=topology,
        in_network_reduction=reduces,
        oversubscription=ratio(table.get("oversubscription", 1.0), f"{thing} oversubscription"),
        algorithms=_names(table.get("algorithms", []), f"{thing} algorithms"),
        fabric=fabric,
    )


def _names(value: object, thing: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise BadInput(thing, value, "is not a list", 'write it like ["ring", "direct"]')
    return tuple(_text(each, thing) for each in value)


def ratio(value: object, thing: str) -> float:
    """`value` as a plain number of at least one, and at most a million."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 1 <= value <= 1e6:
        raise BadInput(thing, value, "is not a number of at least 1", "write it like 1.2")
    return float(value)


def _merge_named(old: list[dict[str, Any]], new: list[dict[str, Any]], thing: str) -> list[dict[str, Any]]:
    tables = {each["name"]: each for each in old}
    for each in new:
        name = _required(each, "name", thing, _text)
        known = tables.get(name, {})
        if "capacity" in each:  # what the runtime reports of another size is not known
            known = {key: value for key, value in known.items() if key != "usable_memory"}
        tables[name] = known | each
    return list(tables.values())


def _required(table: Table, key: str, thing: str, convert: Callable[[object, str], T]) -> T:
    if key not in table:
        raise BadInput(thing, key, "is missing", "add it, or name a base that has it")
    return convert(table[key], f"{thing} {key}")


def _quantity(table: Table, key: str, unit: str, thing: str) -> float:
    return _required(table, key, thing, lambda value, where: parse_quantity(value, unit, where))


def _positive(table: Table, key: str, unit: str, thing: str) -> float:
    value = _quantity(table, key, unit, thing)
    if value == 0:
        raise BadInput(f"{thing} {key}", table[key], "is zero", "give what the datasheet states")
    return value


def _text(value: object, thing: str) -> str:
    if not isinstance(value, str) or not value:
        raise BadInput(thing, value, "is not text", "write it in quotes")
    return value


def _table(value: object, thing: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadInput(thing, value, "is not a table", f"write it as [{thing.split()[-1]}]")
    return value


def _tables(value: object, thing: str) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise BadInput(thing, value, "is not a list of tables", f"write it as [[{thing.split()[-1]}]]")
    return [_table(each, thing) for each in value]
