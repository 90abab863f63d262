"""Any field can be named, whatever fields there are."""

from dataclasses import dataclass

import numpy as np
import pytest

from tests.builders import round_cluster
from trainwright.errors import BadInput, UnknownName
from trainwright.sweep.paths import resolve, unit_of, value_at, with_value


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    cluster: object
    number: int = 3


ROOT = Root(cluster=round_cluster(16))


@pytest.mark.parametrize(
    ("text", "path", "unit"),
    [
        ("cluster.device.memory.0.capacity", ("cluster", "device", "memory", 0, "capacity_bytes"), "bytes"),
        ("cluster.memory.host.bandwidth", ("cluster", "device", "memory", 1, "bytes_per_s"), "bytes/s"),
        ("cluster.levels.1.latency", ("cluster", "network", "levels", 1, "latency_s"), "s"),
        ("cluster.levels.fabric.bytes_per_s", ("cluster", "network", "levels", 1, "bytes_per_s"), "bytes/s"),
        ("cluster.device.peak.bf16", ("cluster", "device", "peak_flops_per_s", "bf16"), "flops/s"),
        ("cluster.peak_w", ("cluster", "device", "peak_w"), "W"),
        ("cluster.price", ("cluster", "device", "price_per_hour"), "$/h"),
        ("cluster.count", ("cluster", "count"), ""),
        ("number", ("number",), ""),
    ],
)
def test_a_field_is_found_by_its_name_without_unit_or_owner(
    text: str, path: tuple[str | int, ...], unit: str
) -> None:
    assert resolve(ROOT, text) == path
    assert unit_of(path) == unit


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("cluster.memmory", "did you mean"),
        ("cluster.levels.7.latency", '"7": no such name'),
        ("cluster.device.peak.fp9", '"fp9": no such name'),
        ("number.more", '"more": no such name'),
    ],
)
def test_a_field_that_is_not_there_is_told(text: str, match: str) -> None:
    with pytest.raises(UnknownName, match=match):
        resolve(ROOT, text)


def test_a_name_that_two_parts_have_must_be_told_apart() -> None:
    with pytest.raises(BadInput, match=r"is in several parts: device\.source, network\.source; say which"):
        resolve(ROOT, "cluster.source")


def test_a_value_is_put_in_and_the_rest_stays() -> None:
    path = resolve(ROOT, "cluster.memory.0.capacity")
    changed = with_value(ROOT, path, 1e9)
    assert value_at(changed, path) == 1e9
    assert value_at(ROOT, path) == 80e9
    assert changed.cluster.network is ROOT.cluster.network  # type: ignore[attr-defined]


def test_a_value_is_checked_as_it_is_put_in_but_arrays_are_not() -> None:
    path = resolve(ROOT, "cluster.count")
    with pytest.raises(BadInput, match="needs at least one device"):
        with_value(ROOT, path, 0)
    many = with_value(ROOT, path, np.array([1, 2]))
    assert value_at(many, path).tolist() == [1, 2]
