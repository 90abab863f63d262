"""Collectives with stated algorithms: each level takes the cheapest of its own, by hand."""

from itertools import pairwise

import pytest

from tests.builders import floats
from trainwright.cluster.types import Level
from trainwright.cost.collective import (
    Link,
    all_gather_s,
    all_reduce_s,
    all_to_all_s,
    is_straight,
    reduce_scatter_s,
    span,
)
from trainwright.errors import BadInput, UnknownName

GB = 1e9


def link(topology: str, size: int, *algorithms: str, rate: float = 100e9, inside: int = 0) -> Link:
    return Link(
        inside=inside or size, bytes_per_s=rate, latency_s=1e-6, reduction="in-network" in algorithms,
        topology=topology, size=size, algorithms=algorithms,
    )  # fmt: skip


def gather(one: Link, size: float, members: int = 0) -> float:
    where = span((one,), floats(members or one.size), floats(1))
    return float(all_gather_s((one,), where, floats(size))[0])


def reduce(one: Link, size: float) -> float:
    return float(all_reduce_s((one,), span((one,), floats(one.size), floats(1)), floats(size))[0])


def test_several_levels_are_the_sum_of_each_on_what_is_left() -> None:
    # 4·4·2 devices: 2·(n−1)/n·bytes/rate each, bytes 1 GB, 1/4 GB, 1/16 GB
    links = (
        link("switch", 4, "ring", rate=300e9, inside=4), link("switch", 4, "ring", rate=100e9, inside=16),
        link("switch", 2, "ring", rate=25e9, inside=32),
    )  # fmt: skip
    where = span(links, floats(32), floats(1))
    expected = 1.5 * GB / 300e9 + 1.5 * GB / 4 / 100e9 + 1.0 * GB / 16 / 25e9
    latency = 2 * (3 + 3 + 1) * 1e-6
    assert all_reduce_s(links, where, floats(GB))[0] == pytest.approx(expected + latency)
    assert all_gather_s(links, where, floats(GB))[0] == pytest.approx((expected + latency) / 2)
    assert reduce_scatter_s(links, where, floats(GB))[0] == pytest.approx((expected + latency) / 2)


def test_large_messages_take_the_ring_and_small_ones_the_fewest_hops() -> None:
    both = link("switch", 8, "ring", "halving-doubling")
    assert gather(both, 8e3) == pytest.approx(7 / 8 * 8e3 / 100e9 + 3e-6)
    direct = link("switch", 8, "ring", "direct")
    assert gather(direct, 8e3) == pytest.approx(7 / 8 * 8e3 / 100e9 + 1e-6)


def test_fully_connected_devices_speak_directly_over_all_links() -> None:
    # 7 links of 100/7 GB/s; one eighth of the bytes over each, at once
    assert gather(link("full", 8, "direct"), GB) == pytest.approx(GB / 8 / (100e9 / 7) + 1e-6)
    # doubling uses one link at a time: 7/8 of the bytes over a seventh of the rate
    assert gather(link("full", 8, "halving-doubling"), GB) == pytest.approx(7 / 8 * GB / (100e9 / 7) + 3e-6)


def test_a_torus_gathers_along_all_axes_at_once() -> None:
    # 64 = 4·4·4: 63/64 of the bytes over six links, three times three hops
    cube = link("torus3d", 64, "dimension-wise")
    assert gather(cube, GB) == pytest.approx(63 / 64 * GB / 100e9 + 9e-6)
    # a ring through all of them takes 63 hops
    assert gather(link("torus3d", 64, "ring"), GB) == pytest.approx(63 / 64 * GB / 100e9 + 63e-6)
    # one axis of a square of 4·4: half of the links, three hops
    square = link("torus2d", 16, "dimension-wise")
    assert gather(square, GB, members=4) == pytest.approx(3 / 4 * GB / 50e9 + 3e-6)


def test_rings_over_a_dragonfly_take_detours() -> None:
    assert gather(link("dragonfly", 8, "ring"), GB) == pytest.approx(7 / 8 * GB / 50e9 + 7e-6)
    assert gather(link("dragonfly", 8, "direct"), GB) == pytest.approx(7 / 8 * GB / 100e9 + 1e-6)


def test_switches_that_reduce_carry_a_sum_once() -> None:
    plain = reduce(link("switch", 8, "ring", "tree"), GB)
    helped = reduce(link("switch", 8, "ring", "in-network"), GB)
    assert helped == pytest.approx(9 / 8 * GB / (0.8 * 100e9) + 2e-6)
    assert helped < plain


def test_a_tree_wins_small_sums() -> None:
    assert reduce(link("switch", 64, "ring", "tree"), 1e3) == pytest.approx(2e3 / 100e9 + 12e-6)


@pytest.mark.parametrize("algorithms", [(), ("ring",), ("ring", "direct", "tree"), ("halving-doubling",)])
@pytest.mark.parametrize("topology", ["switch", "full", "dragonfly"])
def test_a_faster_link_and_more_algorithms_never_slow(topology: str, algorithms: tuple[str, ...]) -> None:
    rates = (1e9, 1e10, 3e10, 1e12)
    for size in (1e3, 1e6, 1e9):
        for collective in (all_gather_s, all_reduce_s, all_to_all_s, reduce_scatter_s):
            times = []
            for rate in rates:
                one = link(topology, 8, *algorithms, rate=rate)
                where = span((one,), floats(8), floats(1))
                times.append(float(collective((one,), where, floats(size))[0]))
            assert all(after <= before for before, after in pairwise(times))
        if algorithms:
            fewer = link(topology, 8, *algorithms[:1])
            assert gather(link(topology, 8, *algorithms), size) <= gather(fewer, size)


def test_lines_are_for_one_algorithm() -> None:
    assert is_straight((link("switch", 8),))
    assert not is_straight((link("switch", 8, "ring"),))


def test_algorithms_must_suit_the_level() -> None:
    def level(topology: str, *algorithms: str) -> Level:
        return Level(
            name="a", size=8, bytes_per_s=1e9, latency_s=0.0, topology=topology, algorithms=algorithms,  # type: ignore[arg-type]
        )  # fmt: skip

    with pytest.raises(BadInput, match="does not run on topology torus3d"):
        level("torus3d", "direct")
    with pytest.raises(BadInput, match="its switches do not reduce"):
        level("switch", "ring", "in-network")
    with pytest.raises(BadInput, match="cannot gather or scatter"):
        level("switch", "tree")
    with pytest.raises(UnknownName, match="halving"):
        level("switch", "halving")
