"""Known answers: which moves lead from one layout to another, and what they cost."""

from collections.abc import Iterable, Mapping

import pytest

from trainwright.cost.collective import Link
from trainwright.program.convert import convert
from trainwright.program.layout import Layout, Mesh, build_layout
from trainwright.program.moves import Move, groups, total_s
from trainwright.program.network import Network

NODE = Link(inside=8, bytes_per_s=100e9, latency_s=0.0, reduction=False, size=8)
FABRIC = Link(inside=64, bytes_per_s=10e9, latency_s=0.0, reduction=False, size=8)
NETWORK = Network(links=(NODE, FABRIC))
PATIENT = Network(links=(Link(inside=64, bytes_per_s=1e9, latency_s=1e-3, reduction=False, size=64),))
DIMS = {"b": 64, "s": 1024, "h": 4096}
WHOLE_BYTES = 64 * 1024 * 4096 * 2


def mesh(*axes: int, first: int = 0) -> Mesh:
    count = 1
    for size in axes:
        count *= size
    return Mesh(devices=tuple(range(first, first + count)), axes=axes)


def found(source: Layout, target: Layout, dims: Mapping[str, int] = DIMS) -> tuple[Move, ...]:
    return convert(source, target, dims, 2.0, NETWORK)


def kinds(moves: Iterable[Move]) -> list[str]:
    return [move.kind for move in moves]


NODE_MESH = mesh(8)
WHOLE = build_layout(NODE_MESH, {})
SHARED = build_layout(NODE_MESH, {}, [0])
BY_HEAD = build_layout(NODE_MESH, {"h": [0]})
BY_SEQUENCE = build_layout(NODE_MESH, {"s": [0]})


def test_equal_layouts_need_no_moves() -> None:
    assert found(BY_HEAD, BY_HEAD) == ()


def test_shares_become_copies_by_one_all_reduce() -> None:
    (move,) = found(SHARED, WHOLE)
    assert move.kind == "all_reduce"
    # 2·7/8 of all bytes at 100 GB/s
    assert move.seconds == pytest.approx(1.75 * WHOLE_BYTES / 100e9)
    assert move.sent_bytes == pytest.approx(1.75 * WHOLE_BYTES)


def test_shares_become_parts_by_a_reduce_scatter() -> None:
    (move,) = found(SHARED, BY_HEAD)
    assert move.kind == "reduce_scatter"
    assert move.seconds == pytest.approx(0.875 * WHOLE_BYTES / 100e9)


def test_parts_become_copies_by_an_all_gather() -> None:
    (move,) = found(BY_HEAD, WHOLE)
    assert move.kind == "all_gather"
    assert move.seconds == pytest.approx(0.875 * WHOLE_BYTES / 100e9)


def test_parts_of_one_dim_become_parts_of_another_by_an_all_to_all() -> None:
    (move,) = found(BY_HEAD, BY_SEQUENCE)
    assert move.kind == "all_to_all"
    # an eighth of all bytes on each device, 7/8 of which leave it
    assert move.seconds == pytest.approx(0.875 * WHOLE_BYTES / 8 / 100e9)


def test_copies_become_parts_or_shares_for_nothing() -> None:
    (cut,) = found(WHOLE, BY_HEAD)
    (zeroed,) = found(WHOLE, SHARED)
    assert (cut.kind, cut.seconds) == ("slice", 0.0)
    assert (zeroed.kind, zeroed.seconds) == ("zero", 0.0)


def test_shares_over_two_axes_are_summed_at_once() -> None:
    grid = mesh(2, 4)
    (move,) = found(build_layout(grid, {}, [0, 1]), build_layout(grid, {}))
    assert (move.kind, move.axes) == ("all_reduce", (0, 1))
    assert groups(move) == ((tuple(range(8)), tuple(range(8))),)


def test_parts_of_two_dims_are_gathered_at_once() -> None:
    grid = mesh(2, 4)
    (move,) = found(build_layout(grid, {"h": [0], "s": [1]}), build_layout(grid, {}))
    assert (move.kind, move.axes) == ("all_gather", (0, 1))


def test_meshes_of_the_same_devices_meet_on_common_axes() -> None:
    (move,) = found(build_layout(mesh(2, 4), {"h": [0, 1]}), build_layout(mesh(4, 2), {"h": [0]}))
    assert move.kind == "all_gather"
    assert move.source.mesh.axes == (2, 2, 2)
    assert groups(move)[0] == ((0, 1), (0, 1))


def test_the_same_parts_need_no_moves_whatever_the_axes() -> None:
    assert found(BY_HEAD, build_layout(mesh(2, 4), {"h": [0, 1]})) == ()


def test_parts_in_another_order_change_places() -> None:
    grid = mesh(2, 4)
    (move,) = found(build_layout(grid, {"h": [0, 1]}), build_layout(grid, {"h": [1, 0]}))
    assert move.kind == "permute"
    # device 1 at (0, 1) wants part 1·2 + 0 = 2, which device 2 holds
    assert groups(move)[1] == ((2,), (1,))


def test_a_sum_between_nodes_is_shared_by_copies_inside_them() -> None:
    grid = mesh(8, 8)
    moves = found(build_layout(grid, {}, [0]), build_layout(grid, {}))
    assert kinds(moves) == ["slice", "reduce_scatter", "all_gather"]
    # an eighth over one link of 10 GB/s, then all over a ring that leaves each node by 8 links: 80 GB/s
    scatter_s, gather_s = 7 / 8 * WHOLE_BYTES / 8 / 10e9, 63 / 64 * WHOLE_BYTES / 80e9
    assert total_s(moves) == pytest.approx(scatter_s + gather_s)  # of one all-reduce: 1.75 · bytes / 10 GB/s


def test_copies_are_sent_to_another_node_in_parts() -> None:
    moves = found(WHOLE, build_layout(mesh(8, first=8), {}))
    assert kinds(moves) == ["slice", "send", "all_gather"]
    assert moves[1].seconds == pytest.approx(WHOLE_BYTES / 8 / 10e9)
    assert groups(moves[1])[3] == ((3,), (11,))


def test_parts_are_sent_one_to_one() -> None:
    (move,) = found(BY_HEAD, build_layout(mesh(8, first=8), {"h": [0]}))
    assert move.kind == "send"


def test_shares_stay_shares_across_groups() -> None:
    (move,) = convert(SHARED, build_layout(mesh(8, first=8), {}, [0]), {"b": 1}, 2.0, PATIENT)
    assert move.kind == "send"
    assert move.target.partial == (0,)


def test_fewer_devices_scatter_to_more() -> None:
    (move,) = found(build_layout(mesh(4), {"h": [0]}), build_layout(mesh(4, 2, first=8), {"h": [0, 1]}))
    assert move.kind == "scatter"
    assert groups(move)[1] == ((1,), (10, 11))
    # a quarter of all bytes leaves each sender
    assert move.seconds == pytest.approx(WHOLE_BYTES / 4 / 10e9)


def test_more_devices_gather_to_fewer() -> None:
    (move,) = found(build_layout(mesh(4, 2), {"h": [0, 1]}), build_layout(mesh(4, first=8), {"h": [0]}))
    assert move.kind == "gather"
    assert groups(move)[1] == ((2, 3), (9,))


def test_one_device_reaches_many_and_many_reach_one() -> None:
    one = build_layout(mesh(1), {})
    little = {"b": 1}
    (spread,) = convert(one, build_layout(mesh(3, first=1), {}), little, 2.0, PATIENT)
    (summed,) = convert(build_layout(mesh(3, first=1), {}, [0]), one, little, 2.0, PATIENT)
    assert (spread.kind, groups(spread)) == ("broadcast", (((0,), (1, 2, 3)),))
    assert (summed.kind, groups(summed)) == ("reduce", (((1, 2, 3), (0,)),))


def test_groups_that_do_not_nest_exchange_messages() -> None:
    moves = found(build_layout(mesh(2, 3), {"h": [1]}), build_layout(mesh(3, 2), {"h": [0, 1]}))
    assert [move.fallback for move in moves] == [True]


def test_what_devices_have_already_is_not_sent() -> None:
    turned = Mesh(devices=(3, 2, 1, 0), axes=(4,))
    (move,) = found(build_layout(mesh(4), {}), build_layout(turned, {"h": [0]}))
    assert move.seconds == 0.0


def test_unequal_parts_are_gathered_as_if_they_were_the_largest() -> None:
    two = mesh(2)
    uneven = build_layout(two, {"h": [0]}, sizes={"h": (1024, 3072)})
    (move,) = found(uneven, build_layout(two, {}))
    assert move.kind == "all_gather"
    assert move.seconds == pytest.approx(0.75 * WHOLE_BYTES / 100e9)


def test_given_sizes_that_are_the_usual_ones_change_nothing() -> None:
    two = mesh(2)
    assert (
        found(build_layout(two, {"h": [0]}, sizes={"h": (2048, 2048)}), build_layout(two, {"h": [0]})) == ()
    )


def test_the_answer_on_other_devices_names_those() -> None:
    found(SHARED, WHOLE)
    there = mesh(8, first=16)
    (move,) = found(build_layout(there, {}, [0]), build_layout(there, {}))
    assert move.source.mesh == move.target.mesh == there
