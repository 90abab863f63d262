"""Checksums of a profile's file: of what was measured, which nobody edits, and of the cluster around it.

They are over values, not text: comments and the order of keys may change.
"""

import json
import tomllib
from collections.abc import Mapping
from typing import Any

from trainwright.checksum import digest
from trainwright.errors import BadInput

MEASUREMENTS, CLUSTER = "checksum", "cluster_checksum"  # keys of [profile]
_SET_BY_USERS = ("idle_power", "peak_power", "price_per_hour")  # of [device]; of the cluster, its count


def seal_profile(text: str) -> str:
    """The text of a profile's file with both checksums, first in its [profile]."""
    table = tomllib.loads(text)
    lines = [f'{MEASUREMENTS} = "{_measured_digest(table)}"', f'{CLUSTER} = "{_cluster_digest(table)}"']
    before, mark, after = text.partition("\n[profile]\n")
    return before + mark + "\n".join(lines) + "\n" + after


def check_measurements(table: Mapping[str, Any], thing: str) -> None:
    """Raise if what was measured is not as it was written; without a checksum, nothing is known of that."""
    stated = table["profile"].get(MEASUREMENTS)
    if stated is not None and stated != _measured_digest(table):
        rule = "was edited or damaged since it was written: the checksum of [profile] differs"
        remedy = f'measure again, or remove the line "{MEASUREMENTS}" to use it as it is'
        raise BadInput(thing, str(stated), rule, remedy)


def cluster_changed(table: Mapping[str, Any]) -> bool:
    """Whether the device or the network is not as it was written, but for what users are asked to set."""
    stated = table["profile"].get(CLUSTER)
    return stated is not None and stated != _cluster_digest(table)


def _measured_digest(table: Mapping[str, Any]) -> str:
    profile = table["profile"]
    return _digest({key: value for key, value in profile.items() if key not in (MEASUREMENTS, CLUSTER)})


def _cluster_digest(table: Mapping[str, Any]) -> str:
    kept = {key: value for key, value in table.items() if key not in ("profile", "count")}
    device = kept.get("device")
    if isinstance(device, dict):
        kept["device"] = {key: value for key, value in device.items() if key not in _SET_BY_USERS}
    return _digest(kept)


def _digest(value: object) -> str:
    return "sha256:" + digest(json.dumps(value, sort_keys=True, default=str).encode())
