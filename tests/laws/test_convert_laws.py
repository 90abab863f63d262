"""Whatever the layouts, moves bring every device what it should hold, and no other way is cheaper."""

from dataclasses import dataclass
from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cost.collective import Link
from trainwright.program.apply import apply_all, shards_of, whole_of
from trainwright.program.convert import convert
from trainwright.program.exchange import build_exchange
from trainwright.program.layout import Layout, Mesh, build_layout
from trainwright.program.moves import Move, total_s
from trainwright.program.network import Network

NODE = Link(inside=4, bytes_per_s=100e9, latency_s=2e-6, reduction=False, size=4)
SHARP = Link(inside=4, bytes_per_s=300e9, latency_s=5e-6, reduction=True, size=4)
FABRIC = Link(inside=64, bytes_per_s=10e9, latency_s=10e-6, reduction=False, size=16)
SLICE = Link(inside=16, bytes_per_s=50e9, latency_s=1e-6, reduction=False, topology="torus2d", size=16)
NETWORKS = (Network(links=(NODE, FABRIC)), Network(links=(SHARP, FABRIC)), Network(links=(SLICE, FABRIC)))
SHAPES = {
    4: ((4,), (2, 2)),
    6: ((6,), (2, 3), (3, 2)),
    8: ((8,), (2, 4), (4, 2), (2, 2, 2)),
    12: ((12,), (3, 4), (2, 3, 2)),
    16: ((4, 4), (2, 8), (2, 4, 2), (2, 2, 2, 2)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A tensor, and layouts of it."""

    dims: dict[str, int]
    layouts: tuple[Layout, ...]
    element_bytes: float
    network: Network

    def moves(self, source: int, target: int) -> tuple[Move, ...]:
        return convert(
            self.layouts[source], self.layouts[target], self.dims, self.element_bytes, self.network
        )


@st.composite
def layouts(draw: st.DrawFn, mesh: Mesh, dims: dict[str, int], uneven: bool = True) -> Layout:
    order = draw(st.permutations(range(len(mesh.axes))))
    splits: dict[str, list[int]] = {}
    partial: list[int] = []
    for axis in order:
        role = draw(st.sampled_from([*dims, "copy", "sum"]))
        if role == "sum":
            partial.append(axis)
        elif role != "copy":
            splits.setdefault(role, []).append(axis)
    sizes = {}
    for dim, axes in splits.items():
        if uneven and len(axes) == 1 and mesh.axes[axes[0]] == 2 and dims[dim] > 2 and draw(st.booleans()):
            cut = draw(st.integers(1, dims[dim] - 1))
            sizes[dim] = (cut, dims[dim] - cut)
    return build_layout(mesh, splits, partial, sizes)


def tensors() -> st.SearchStrategy[dict[str, int]]:
    return st.lists(st.sampled_from([1, 3, 4, 5, 6, 8, 16]), min_size=1, max_size=3).map(
        lambda sizes: dict(zip("bsh", sizes, strict=False))
    )


def cases(draw: st.DrawFn, meshes: list[Mesh], dims: dict[str, int], uneven: bool = True) -> Case:
    return Case(
        dims=dims,
        layouts=tuple(draw(layouts(mesh, dims, uneven)) for mesh in meshes),
        element_bytes=draw(st.sampled_from([2.0, 1e4, 1e7])),
        network=draw(st.sampled_from(NETWORKS)),
    )


@st.composite
def on_one_mesh(draw: st.DrawFn, count: int = 2) -> Case:
    mesh = draw(meshes(draw(st.sampled_from(sorted(SHAPES)))))
    even = {dim: 16 * draw(st.integers(1, 3)) for dim in "bsh"}
    return cases(draw, [mesh] * count, even, uneven=False)


@st.composite
def meshes(draw: st.DrawFn, count: int, first: int = 0) -> Mesh:
    return Mesh(devices=tuple(range(first, first + count)), axes=draw(st.sampled_from(SHAPES[count])))


@st.composite
def on_the_same_devices(draw: st.DrawFn) -> Case:
    count = draw(st.sampled_from(sorted(SHAPES)))
    return cases(draw, [draw(meshes(count)), draw(meshes(count))], draw(tensors()))


@st.composite
def on_devices_in_another_order(draw: st.DrawFn) -> Case:
    count = draw(st.sampled_from([4, 6, 8]))
    devices = tuple(draw(st.permutations(range(count))))
    other = Mesh(devices=devices, axes=draw(st.sampled_from(SHAPES[count])))
    return cases(draw, [draw(meshes(count)), other], draw(tensors()))


@st.composite
def between_groups(draw: st.DrawFn) -> Case:
    sizes = [draw(st.sampled_from(sorted(SHAPES))) for _ in range(2)]
    first = draw(st.sampled_from([2, 4, 8, 16]))  # some groups overlap
    return cases(draw, [draw(meshes(sizes[0])), draw(meshes(sizes[1], first))], draw(tensors()))


def check_values(case: Case) -> None:
    whole = np.arange(prod(case.dims.values())).reshape(tuple(case.dims.values()))
    source, target = case.layouts
    held = apply_all(case.moves(0, 1), shards_of(whole, source, case.dims), case.dims)
    expected = [part.shape for part in shards_of(whole, target, case.dims)]
    assert [part.shape for part in held] == expected
    assert np.array_equal(whole_of(held, target, case.dims), whole)


@given(case=on_the_same_devices())
def test_moves_on_one_group_of_devices_keep_the_tensor(case: Case) -> None:
    check_values(case)


@given(case=on_devices_in_another_order())
def test_moves_to_devices_in_another_order_keep_the_tensor(case: Case) -> None:
    check_values(case)


@given(case=between_groups())
def test_moves_between_groups_keep_the_tensor(case: Case) -> None:
    check_values(case)


@given(case=on_the_same_devices())
def test_a_layout_is_reached_from_itself_without_moves(case: Case) -> None:
    assert case.moves(0, 0) == () == case.moves(1, 1)


@given(case=on_one_mesh(count=3))
def test_a_detour_is_never_cheaper(case: Case) -> None:
    detour = case.moves(0, 1) + case.moves(1, 2)
    # One all-reduce is preferred to a pair that is less than 1 % faster; exchanges are a last resort.
    if not any(move.fallback for move in detour):
        assert total_s(case.moves(0, 2)) <= total_s(detour) / 0.99 + 1e-11


@given(case=on_one_mesh())
def test_moves_cost_no_more_than_to_gather_everything_and_slice(case: Case) -> None:
    source, target = case.layouts
    whole = build_layout(source.mesh, {})
    cost = case.dims, case.element_bytes, case.network
    seconds = total_s(convert(source, whole, *cost)) + total_s(convert(whole, target, *cost))
    assert total_s(case.moves(0, 1)) <= seconds / 0.99 + 1e-11


@given(case=on_the_same_devices())
def test_messages_between_devices_are_not_much_faster(case: Case) -> None:
    exchange = build_exchange(*case.layouts, case.dims, case.element_bytes, case.network)
    # On a torus messages are charged no hops; a collective among few may wait a latency or two more.
    if case.network.links[0].topology == "switch":
        assert total_s(case.moves(0, 1)) <= 2 * exchange.seconds + 2 * FABRIC.latency_s


@given(case=between_groups())
def test_the_same_question_elsewhere_has_the_same_answer(case: Case) -> None:
    def moved(layout: Layout) -> Layout:
        devices = tuple(device + 64 for device in layout.mesh.devices)
        return Layout(
            mesh=Mesh(devices=devices, axes=layout.mesh.axes),
            splits=layout.splits,
            partial=layout.partial,
            sizes=layout.sizes,
        )

    source, target = map(moved, case.layouts)
    there = convert(source, target, case.dims, case.element_bytes, case.network)
    here = case.moves(0, 1)
    assert [(m.kind, m.axes, m.seconds) for m in here] == [(m.kind, m.axes, m.seconds) for m in there]
    assert all(min(m.target.mesh.devices) >= 64 for m in there)


@given(case=on_one_mesh())
def test_a_sum_costs_no_more_than_to_scatter_and_gather_it(case: Case) -> None:
    mesh = case.layouts[0].mesh
    axes = tuple(range(len(mesh.axes)))
    shared, split, whole = (
        build_layout(mesh, {}, axes),
        build_layout(mesh, {"b": axes}),
        build_layout(mesh, {}),
    )
    cost = case.dims, case.element_bytes, case.network
    pair_s = total_s(convert(shared, split, *cost)) + total_s(convert(split, whole, *cost))
    assert total_s(convert(shared, whole, *cost)) <= pair_s / 0.99 + 1e-11
