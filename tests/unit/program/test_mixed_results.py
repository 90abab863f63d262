"""One tensor that goes into several results: what its gradient is where a plan splits only some of them."""

from dataclasses import replace

import pytest

from tests.laws.plans import setting_of, tiny
from trainwright.errors import BadInput
from trainwright.model.flow import wire
from trainwright.model.graph import Kind, Op, Tensor, served_results
from trainwright.plan.expand import expand
from trainwright.plan.strategy import parse_strategy
from trainwright.program.layout import Mesh
from trainwright.program.lower import Program, lower
from trainwright.program.placed import Placed
from trainwright.program.tensors import tensor_layout

QKV = next(each.op for each in wire(tiny("gpt")) if each.op.name == "attention.qkv")


def renamed(op: Op) -> Op:
    """The same products with names from which no result can be told."""
    weights = tuple(replace(each, name=f"w{place}") for place, each in enumerate(op.weights))
    return replace(op, weights=weights)


def test_a_weight_serves_the_result_that_it_is_named_after() -> None:
    weight = QKV.weights[1]
    (served,) = served_results(QKV, weight.name)
    assert served.name.removesuffix(".out") == weight.name.removesuffix(".weight")


def test_a_weight_of_another_name_serves_all_results_unless_the_operator_says_which() -> None:
    op = renamed(QKV)
    results = (op.output, *op.extra_outputs)
    assert served_results(op, "w1") == results
    stated = replace(op, serves=(("w1", (results[1].name,)),))
    assert served_results(stated, "w1") == (results[1],)


def parallel_program(serves: tuple[tuple[str, tuple[str, ...]], ...], kind: Kind) -> Program:
    """Layers in which one operator writes heads and an FFN: tp2 splits the heads and copies the FFN."""
    graph = tiny("gpt")
    segments = []
    for segment in graph.segments:
        ops = []
        for op in segment.block.ops:
            if op.name == "attention.qkv":
                wide = replace(op.output, name="ffn.out", dims=("batch", "seq", "ffn"))
                weight = replace(op.weights[0], name="w.ffn", dims=("hidden", "ffn"))
                op = replace(
                    op, kind=kind, extra_outputs=(*op.extra_outputs, wide), serves=serves,
                    weights=(*op.weights, weight),
                )  # fmt: skip
            ops.append(op)
        segments.append(replace(segment, block=replace(segment.block, ops=tuple(ops))))
    graph = replace(graph, segments=tuple(segments))
    plan = expand(parse_strategy("tp2 mb2"), graph, 2)
    return lower(setting_of(graph), plan)


def test_the_gradient_of_a_weight_whose_result_is_copied_is_not_summed() -> None:
    program = parallel_program((("w.ffn", ("ffn.out",)),), "matmul")
    groups = {
        name: bundle.groups
        for bundle in program.routes[0].bundles
        for _, name in bundle.weights
        if bundle.block == "layer.0"
    }
    assert set(groups["w.ffn"]) == {(0,), (1,)}


def test_a_value_that_goes_into_split_and_copied_results_is_refused() -> None:
    stream = QKV.inputs[0].name
    serves = ((stream, (QKV.output.name, "ffn.out")),)
    with pytest.raises(BadInput, match=r"goes into .* which the plan splits in different ways"):
        parallel_program(serves, "elementwise")


def test_an_input_that_goes_into_copied_results_alone_has_its_whole_gradient_everywhere() -> None:
    wide = Tensor(name="q", dims=("batch", "seq", "heads", "head_dim"))
    narrow = Tensor(name="k", dims=("batch", "seq", "head_dim"))
    rotated = [replace(each, name=f"{each.name}.rotated") for each in (wide, narrow)]
    rope = Op(
        name="rope", kind="elementwise", region="attention", inputs=(wide, narrow), output=rotated[0],
        extra_outputs=(rotated[1],), serves=(("q", ("q.rotated",)), ("k", ("k.rotated",))),
    )  # fmt: skip
    placed = Placed(mesh=Mesh(devices=(0, 1), axes=(2,)), dims=("heads",), uneven={})
    sizes = {"batch": 2, "seq": 4, "heads": 2, "head_dim": 4}
    assert tensor_layout(placed, rope, narrow, "gradient of read", sizes).partial == ()
    both = replace(rope, serves=(*rope.serves[:1], ("k", ("q.rotated", "k.rotated"))))
    assert tensor_layout(placed, both, narrow, "gradient of read", sizes).partial == (0,)
