"""Clusters by name: `h100:512`, `h100:512@aws-p5`, `h100:64x2@10Gbps`, or a TOML file.

A cluster file has `count`, `device`, and optionally `name`, `network`, `pue`, `spill` and `hybrid`. `device`
and `network` are catalog names, or tables that may start from one and change any of its keys:

    count = 512
    [device]
    base = "h100"
    peak.bf16 = "1200 TFLOP/s"
    [[device.memory]]  # tiers and levels are matched by name; a new name is added at the end
    name = "hbm"
    capacity = "141 GiB"
    usable_memory = "139.8 GiB"  # what the runtime reports; without it the capacity is taken
    [network]
    base = "aws-p5"
"""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from trainwright.cluster.entry import (
    build_device,
    build_network,
    check_keys,
    merge_entry,
    ratio,
    whole_number,
)
from trainwright.cluster.figure_sources import FigureSource, build_figure_sources, stated_figures
from trainwright.cluster.sites import join_sites, split_sites
from trainwright.cluster.types import EVEN, HYBRIDS, SPILL, Cluster, Device, HybridModel, Network, Placed
from trainwright.errors import BadInput, UnknownName
from trainwright.input_file import load_toml

CLUSTER_KEYS = (
    "name", "count", "device", "network", "pue", "at_once", "spill", "hybrid", "profile", "efficiency",
)  # fmt: skip
_CATALOG = Path(__file__).parent.parent / "catalog"
_EXAMPLE = 'write it like "h100:512" or "h100:512@aws-p5", or name a TOML file'
_VENDORS = {"nvidia", "amd", "instinct", "intel", "habana", "google", "cloud", "aws", "amazon", "tesla"}
_PACKAGES = re.compile(r"sxm\d?|oam|gpu|hbm\d?e?|tensor|core")
_MOST_DEVICES = 1_000_000
_ALIASES = re.compile(r"^aliases = (\[.*\])$", re.MULTILINE)


@cache
def load_device(name: str) -> Device:
    """The catalog's device of this name or alias."""
    return build_device(_entry("devices", name), f"device {name}")


def load_figure_sources(name: str) -> dict[str, FigureSource]:
    """Where each figure of the catalog's device of this name or alias is from, by figure (`peak.bf16`)."""
    return build_figure_sources(_entry("devices", name), f"device {name}")


def load_figures(name: str) -> dict[str, Any]:
    """Every figure of the catalog's device of this name or alias, as its entry writes it."""
    return stated_figures(_entry("devices", name))


@cache
def load_network(name: str) -> Network:
    """The catalog's network of this name or alias."""
    return build_network(_entry("networks", name), f"network {name}")


def device_names() -> tuple[str, ...]:
    """Names of all devices in the catalog, without aliases."""
    return _names("devices")


def network_names() -> tuple[str, ...]:
    """Names of all networks in the catalog, without aliases."""
    return _names("networks")


def load_cluster(text: str) -> Cluster:
    """The cluster that `text` names: `DEVICE:COUNT`, `DEVICE:COUNT@NETWORK`, or the path of a TOML file.

    `DEVICE:COUNTxSITES@RATE` is as many sites alike, each with a link of that rate to the others, of 5 ms
    unless `@LATENCY` follows.
    """
    if not text.endswith(".toml") and (stated := split_sites(text)) is not None:
        if int(stated.site.partition("@")[0].rpartition(":")[2]) * stated.count > _MOST_DEVICES:
            raise BadInput("cluster", text, f"has more than {_MOST_DEVICES:,} devices", "ask for fewer")
        return join_sites(_parse_cluster(stated.site), stated, text)
    is_path = text.endswith(".toml") or "/" in text or "\\" in text
    cluster = _load_file(Path(text)) if is_path else _parse_cluster(text)
    _ = cluster.levels  # its network must be able to join all devices
    _ = cluster.tiers  # and have the levels that share memory
    return cluster


def find_device_alias(text: str) -> str:
    """The catalog name of a device as published tables write it: `NVIDIA A100-SXM (DGX-A100)` is `a100-80gb`.

    What stands in parentheses counts only if it decides. Trailing words that no alias has are dropped, but
    never a memory size: an A100 of 64 GB is not in the catalog.
    """
    keys = _device_keys()
    outside = re.sub(r"\((?!.*\d ?gi?b\b).*?\)", " ", text, flags=re.IGNORECASE)
    for words in (_words(text), _words(outside)):
        if (name := keys.get("".join(words))) is not None:
            return name
    words = _words(outside)
    for length in range(len(words) - 1, 0, -1):
        if re.search(r"\d+ ?gi?b", " ".join(words[length:])):
            break
        if (name := keys.get("".join(words[:length]))) is not None:
            return name
    raise UnknownName("device", text, _index("devices"))


def _parse_cluster(text: str) -> Cluster:
    place, _, network = text.partition("@")
    device_name, colon, count = place.rpartition(":")
    if not colon or not device_name:
        raise BadInput("cluster", text, "has no count of devices", _EXAMPLE)
    if not re.fullmatch(r"[0-9]{1,12}", count) or int(count) == 0:
        raise BadInput("cluster", text, f'count "{count}" is not a whole number above zero', _EXAMPLE)
    if int(count) > _MOST_DEVICES:
        raise BadInput("cluster", text, f"has more than {_MOST_DEVICES:,} devices", "ask for fewer")
    if "@" in text and not network:
        raise BadInput("cluster", text, "has no network after @", _EXAMPLE)
    device = load_device(device_name)
    return Cluster(
        name=text, device=device, network=load_network(network or device.network), count=int(count)
    )


def _load_file(path: Path) -> Cluster:
    return build_cluster(load_toml(path, "cluster file"), f"cluster file {path}", path.stem)


def build_cluster(table: Mapping[str, Any], thing: str, usual_name: str) -> Cluster:
    """The cluster that a table of `CLUSTER_KEYS` describes; errors name `thing`."""
    check_keys(table, CLUSTER_KEYS, thing)
    for key in ("count", "device"):
        if key not in table:
            raise BadInput(thing, key, "is missing", 'add count = 512 and device = "h100"')
    entry = _changed("devices", table["device"], f"{thing} device")
    if "network" in table:
        entry.setdefault("network", "its cluster's")
    device = build_device(entry, f"{thing} device")
    network = table.get("network", device.network)
    if isinstance(network, dict) and not {"base", "level"} & set(network):
        network = {"base": device.network} | network
    name = table.get("name", usual_name)
    if not isinstance(name, str):
        raise BadInput(f"{thing} name", name, "is not text", "write it in quotes")
    return Cluster(
        name=name,
        device=device,
        network=build_network(_changed("networks", network, f"{thing} network"), f"{thing} network"),
        count=whole_number(table["count"], f"{thing} count", most=_MOST_DEVICES),
        pue=ratio(table.get("pue", 1.2), f"{thing} pue"),
        at_once=whole_number(table["at_once"], f"{thing} at_once") if "at_once" in table else 0,
        spill=_spill(table.get("spill", list(SPILL)), f"{thing} spill"),
        hybrid=_hybrid(table.get("hybrid", "serial"), f"{thing} hybrid"),
    )


def _spill(value: object, thing: str) -> tuple[Placed, ...]:
    """The order in which tensors leave a device's own memory, or `even`."""
    if value == "even":
        return EVEN
    if not isinstance(value, list) or sorted(map(str, value)) != sorted(SPILL):
        names = ", ".join(SPILL)
        raise BadInput(thing, value, f'is neither "even" nor an order of {names}', f"write {list(SPILL)}")
    return tuple(value)


def _hybrid(value: object, thing: str) -> HybridModel:
    if value not in HYBRIDS:
        raise UnknownName(thing, str(value), HYBRIDS)
    return value


def _changed(kind: str, value: object, thing: str) -> dict[str, Any]:
    """The entry that a cluster file means: a catalog name, or a table over its `base`."""
    if isinstance(value, str):
        return _entry(kind, value)
    if not isinstance(value, dict):
        raise BadInput(thing, value, "is neither a name nor a table", 'write a catalog name like "h100"')
    changes = {key: each for key, each in value.items() if key != "base"}
    if "base" not in value:
        return {"source": thing} | changes
    if not isinstance(value["base"], str):
        raise BadInput(f"{thing} base", value["base"], "is not text", "write a catalog name in quotes")
    base = {key: each for key, each in _entry(kind, value["base"]).items() if key != "sources"}
    note = f"{base['source']}; changed in {thing}: {', '.join(changes)}" if changes else base["source"]
    return merge_entry(base, {"source": note} | changes, thing)


def _entry(kind: str, name: str) -> dict[str, Any]:
    known = _names(kind)
    if name not in known:
        wanted, name = name, _index(kind).get(name.strip().lower(), "")
        if not name:
            raise UnknownName(kind.removesuffix("s"), wanted, _index(kind))
    return tomllib.loads((_CATALOG / kind / f"{name}.toml").read_text(encoding="utf-8"))


@cache
def _names(kind: str) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in (_CATALOG / kind).glob("*.toml")))


@cache
def _index(kind: str) -> dict[str, str]:
    """Each name and alias with the name of its entry, read off the line of aliases: parsing all is slow."""
    index: dict[str, str] = {}
    for name in _names(kind):
        line = _ALIASES.search((_CATALOG / kind / f"{name}.toml").read_text(encoding="utf-8"))
        aliases = tomllib.loads(line[0])["aliases"] if line else []
        index |= dict.fromkeys((name, *aliases), name)
    return index


@cache
def _device_keys() -> dict[str, str]:
    return {"".join(_words(alias)): name for alias, name in _index("devices").items()}


def _words(text: str) -> list[str]:
    """Words of a device's name without vendor and package: `NVIDIA H100-SXM-80GB` is h100, 80gb."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    return [word for word in words if word not in _VENDORS and not _PACKAGES.fullmatch(word)]
