"""Collectives pay latency per hop and bytes on the slowest level that they cross."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from tests.builders import floats
from trainwright.cost.collective import (
    Link,
    all_gather_s,
    all_reduce_s,
    all_to_all_s,
    joint_span,
    ring_bytes_per_s,
    send_s,
    span,
)

NODE = Link(inside=8, bytes_per_s=100e9, latency_s=0.0, reduction=False)
FABRIC = Link(inside=64, bytes_per_s=10e9, latency_s=0.0, reduction=False)
LINKS = (NODE, FABRIC)
GB = floats(1e9)


def test_a_group_inside_a_node_lies_on_one_level() -> None:
    where = span(LINKS, floats(4), floats(2))  # 4 members, 2 apart: devices 0, 2, 4, 6
    assert [fan.tolist() for fan in where.fan] == [[4.0], [1.0]]


def test_a_strided_group_has_fewer_members_per_node() -> None:
    where = span(LINKS, floats(8), floats(4))  # 2 of 8 members share a node
    assert [fan.tolist() for fan in where.fan] == [[2.0], [4.0]]
    assert [below.tolist() for below in where.below] == [[1.0], [2.0]]


def test_axes_that_continue_each_other_are_one_in_any_order() -> None:
    # dp3 innermost, then tp2: 6 neighbours; cp2 is 24 apart. Nodes of 4 hold 4 of the 6.
    nodes = (replace(NODE, inside=4), FABRIC)
    tp, cp, dp = (floats(2), floats(3)), (floats(2), floats(24)), (floats(3), floats(1))
    for parts in permutations((tp, cp, dp)):
        where = joint_span(nodes, parts)
        assert [float(fan[0]) for fan in where.fan] == [4.0, 3.0]


def test_a_ring_all_reduce_sends_everything_almost_twice() -> None:
    # 2·(8−1)/8 · 1 GB / 100 GB/s = 17.5 ms
    assert all_reduce_s(LINKS, span(LINKS, floats(8), floats(1)), GB) == pytest.approx(17.5e-3)


def test_an_all_gather_is_half_of_an_all_reduce() -> None:
    # 7/8 · 1 GB / 100 GB/s = 8.75 ms
    assert all_gather_s(LINKS, span(LINKS, floats(8), floats(1)), GB) == pytest.approx(8.75e-3)


def test_one_member_has_nothing_to_say() -> None:
    alone = span(LINKS, floats(1), floats(1))
    for collective in (all_reduce_s, all_gather_s, all_to_all_s):
        assert collective(LINKS, alone, GB) == 0.0


def test_neighbours_of_a_node_share_its_links() -> None:
    # 16 members, 8 per node: a ring leaves the node over 8 links of 10 GB/s, below the 100 GB/s inside
    assert ring_bytes_per_s(LINKS, span(LINKS, floats(16), floats(1))) == pytest.approx(80e9)
    # one member per node: its own link
    assert ring_bytes_per_s(LINKS, span(LINKS, floats(2), floats(8))) == pytest.approx(10e9)


def test_an_all_reduce_between_nodes_runs_at_the_outer_level() -> None:
    # 2·(2−1)/2 · 1 GB / 10 GB/s = 100 ms
    assert all_reduce_s(LINKS, span(LINKS, floats(2), floats(8)), GB) == pytest.approx(0.1)


def test_a_small_all_reduce_takes_the_tree() -> None:
    slow = (replace(NODE, latency_s=1e-6), FABRIC)
    # ring: 2·7 hops; tree: 2·log2(8) = 6 hops
    assert all_reduce_s(slow, span(slow, floats(8), floats(1)), floats(1.0)) == pytest.approx(6e-6, rel=1e-3)


def test_a_switch_that_reduces_is_faster_than_a_ring() -> None:
    reducing = (replace(NODE, reduction=True), FABRIC)
    where = span(reducing, floats(8), floats(1))
    assert all_reduce_s(reducing, where, GB) < all_reduce_s(LINKS, where, GB)
    between = span(reducing, floats(2), floats(8))  # not inside the switch
    assert all_reduce_s(reducing, between, GB) == all_reduce_s(LINKS, between, GB)


def test_an_all_to_all_keeps_its_own_share() -> None:
    # 7/8 of 0.8 GB leaves each device: 0.7 GB / 100 GB/s = 7 ms
    assert all_to_all_s(LINKS, span(LINKS, floats(8), floats(1)), floats(0.8e9)) == pytest.approx(7e-3)


def test_an_all_to_all_between_nodes_is_held_up_by_the_fabric() -> None:
    # of 16 members 8 are in the other node: 8/16 of 1 GB / 10 GB/s = 50 ms
    assert all_to_all_s(LINKS, span(LINKS, floats(16), floats(1)), GB) == pytest.approx(0.05)


def test_a_send_uses_the_innermost_level_that_joins_the_two() -> None:
    # 1 GB / 100 GB/s inside a node, / 10 GB/s between nodes
    assert send_s(LINKS, floats(1, 8), floats(1e9, 1e9)) == pytest.approx([0.01, 0.1])


def test_a_send_beyond_the_last_level_uses_the_last_level() -> None:
    assert send_s(LINKS, floats(1000), GB) == pytest.approx(0.1)


def test_groups_are_independent_of_their_neighbours() -> None:
    sizes, strides = floats(1, 2, 8, 16, 32), floats(1, 8, 1, 2, 1)
    together = all_reduce_s(LINKS, span(LINKS, sizes, strides), floats(1e9))
    alone = [
        all_reduce_s(LINKS, span(LINKS, floats(n), floats(d)), GB)[0]
        for n, d in zip(sizes, strides, strict=True)
    ]
    assert np.array_equal(together, alone)


FULL = Link(inside=8, bytes_per_s=70e9, latency_s=0.0, reduction=False, topology="full", size=8)
TORUS = Link(inside=64, bytes_per_s=60e9, latency_s=0.0, reduction=False, topology="torus3d", size=64)


def test_two_fully_connected_devices_have_one_link_between_them() -> None:
    # 70 GB/s over 7 links: a pair has 10 GB/s; all 8 have 70 GB/s
    assert ring_bytes_per_s((FULL,), span((FULL,), floats(2), floats(1))) == pytest.approx(10e9)
    assert ring_bytes_per_s((FULL,), span((FULL,), floats(8), floats(1))) == pytest.approx(70e9)
    assert send_s((FULL,), floats(1), GB) == pytest.approx(0.1)


def test_a_group_along_one_axis_of_a_torus_has_a_third_of_the_links() -> None:
    # 4 of 4×4×4 lie on one axis; 16 on two; a neighbour is behind one of six links
    rates = [float(ring_bytes_per_s((TORUS,), span((TORUS,), floats(n), floats(1)))[0]) for n in (4, 16, 64)]
    assert rates == pytest.approx([20e9, 40e9, 60e9])
    assert send_s((TORUS,), floats(1), GB) == pytest.approx(0.1)


def test_an_all_to_all_on_a_torus_pays_for_every_hop() -> None:
    # 63/64 GB at 60 GB/s, each byte over 3·4/4 = 3 links on average
    time_s = all_to_all_s((TORUS,), span((TORUS,), floats(64), floats(1)), GB)
    assert time_s == pytest.approx(63 / 64 / 60 * 3)


def test_in_network_reduction_needs_every_level_that_is_crossed() -> None:
    inside, outside = replace(NODE, reduction=True), replace(FABRIC, reduction=True)
    across = span(LINKS, floats(64), floats(1))
    assert all_reduce_s((inside, FABRIC), across, GB) == pytest.approx(all_reduce_s(LINKS, across, GB))
    # 64 members send 65/64 GB to be reduced and spread, over 8 links of 10 GB/s at 0.8 of a ring's rate
    assert all_reduce_s((inside, outside), across, GB) == pytest.approx(65 / 64 / (8 * 10 * 0.8))


def test_two_nodes_are_each_the_root_of_a_tree() -> None:
    # inside 2 GB / 100 GB/s = 20 ms; between, where each of two nodes sends everything once, 1 GB / 80 GB/s =
    # 12.5 ms, at the same time. A ring of 16 would move 2·15/16 GB at 8·10 GB/s in 23.4 ms.
    assert all_reduce_s(LINKS, span(LINKS, floats(16), floats(1)), GB) == pytest.approx(20e-3)
    # four nodes send everything twice, 25 ms: the ring of 32 takes 2·31/32 / 80 GB/s
    assert all_reduce_s(LINKS, span(LINKS, floats(32), floats(1)), GB) == pytest.approx(2 * 31 / 32 / 80)


def test_an_all_reduce_over_four_nodes_with_slow_links_goes_level_by_level() -> None:
    # 1.75 GB / 1 TB/s inside, then 2·3/4 · (1/8 GB) / 10 GB/s = 18.75 ms; trees and ring take 25 and 24.2 ms
    fast = (replace(NODE, bytes_per_s=1e12), FABRIC)
    assert all_reduce_s(fast, span(fast, floats(32), floats(1)), GB) == pytest.approx(20.5e-3)


def test_a_collective_starts_once_and_a_ring_pays_for_every_hop() -> None:
    node, fabric = replace(NODE, start_s=1e-5, hop_s=2e-6), replace(FABRIC, start_s=5e-5, hop_s=1e-5)
    inside, across = (span((node, fabric), floats(n), floats(1)) for n in (8, 64))
    # 8 members: 10 + 7·2 us. 64: 50 us, of 8 nodes 7·10 us between and 8·7·2 us inside
    assert all_gather_s((node, fabric), inside, floats(0.0)) == pytest.approx(24e-6)
    assert all_gather_s((node, fabric), across, floats(0.0)) == pytest.approx((50 + 70 + 112) * 1e-6)
    # a message is one hop
    assert send_s((node, fabric), floats(1, 8), floats(0.0, 0.0)) == pytest.approx([2e-6, 10e-6])


@pytest.mark.parametrize(("members", "bus"), [(5, 414.2), (6, 435.6), (7, 460.0), (8, 473.1)])
def test_nvlink_sharp_is_as_fast_as_measured(members: int, bus: float) -> None:
    # ml-engineering's table of H200: 8 GiB, GB/s of bus bandwidth; 0.678 of 450 GB/s for 2 % at most
    links = (replace(NODE, bytes_per_s=0.81 * 450e9, reduction=True, reducing=0.678 / 0.81),)
    time_s = all_reduce_s(links, span(links, floats(members), floats(1)), floats(2.0**33))
    assert 2 * (members - 1) / members * 2.0**33 / time_s / 1e9 == pytest.approx(bus, rel=0.02)
