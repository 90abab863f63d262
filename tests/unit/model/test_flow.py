"""Every op of a model, and where each of its inputs comes from."""

from dataclasses import replace

import pytest

from trainwright.model.architecture import Architecture
from trainwright.model.build import build_graph
from trainwright.model.flow import Instance, places, wire
from trainwright.model.graph import dim_sizes
from trainwright.model.load import load_model, model_names


def by_name(model: str) -> dict[str, Instance]:
    return {instance.name: instance for instance in wire(build_graph(load_model(model)))}


@pytest.mark.parametrize("name", model_names())
def test_every_input_is_given_or_written_before(name: str) -> None:
    graph = build_graph(load_model(name))
    instances = wire(graph)
    written: set[str] = set()
    for instance in instances:
        assert len(instance.inputs) == len(instance.op.inputs)
        assert {each for each in instance.inputs if not each.startswith("input/")} <= written, instance.name
        assert not written & {*instance.outputs}
        written |= {*instance.outputs}
    assert len({instance.name for instance in instances}) == len(instances)
    assert len(instances) == sum(s.count * len(s.block.ops) for s in graph.segments)


@pytest.mark.parametrize("name", model_names())
def test_a_reader_sees_the_shape_that_was_written(name: str) -> None:
    graph = build_graph(load_model(name))
    sizes = [dim_sizes(graph, segment, batch=2, seq=64) for segment in graph.segments]
    made_on_the_way = {"class_state", "probabilities"}
    shapes: dict[str, list[int]] = {}
    for instance in wire(graph):
        own = sizes[instance.segment]
        for tensor, value in zip(instance.op.inputs, instance.inputs, strict=True):
            if value in shapes and tensor.name not in made_on_the_way:
                assert [own[dim] for dim in tensor.dims] == shapes[value], (instance.name, value)
        for tensor, value in zip(
            (instance.op.output, *instance.op.extra_outputs), instance.outputs, strict=True
        ):
            shapes[value] = [own[dim] for dim in tensor.dims]


def test_blocks_hang_together_by_the_stream() -> None:
    ops = by_name("llama3-8b")
    assert ops["embedding/embedding"].inputs == ("input/tokens",)
    assert ops["layer.0/norm1"].inputs == ("embedding/embedding.out",)
    assert ops["layer.2/residual1"].inputs == ("layer.1/residual2", "layer.2/attention.output.out")
    assert ops["layer.2/attention.qkv"].outputs == tuple(f"layer.2/attention.{part}" for part in "qkv")
    assert ops["head/final_norm"].inputs == ("layer.31/residual2",)
    assert (ops["layer.2/norm1"].block, ops["layer.2/norm1"].layer) == ("layer.2", 2)
    assert ops["head/loss"].layer is None


def test_layers_are_counted_over_alternating_segments() -> None:
    graph = build_graph(load_model("gpt-oss-20b"))
    found = list(places(graph))
    assert [place.name for place in found] == ["embedding", *(f"layer.{i}" for i in range(24)), "head"]
    assert [place.segment for place in found] == list(range(26))


def test_each_stack_counts_its_own_layers() -> None:
    ops = by_name("t5-small")
    assert ops["encoder.embedding/embedding"].inputs == ("input/encoder.tokens",)
    assert ops["decoder.embedding/embedding"].inputs == ("input/decoder.tokens",)
    assert ops["encoder.end/encoder.final_norm"].inputs == ("encoder.5/residual2",)
    assert ops["decoder.0/norm1"].inputs == ("decoder.embedding/embedding_dropout",)
    for layer in (0, 5):
        assert ops[f"decoder.{layer}/cross.kv"].inputs == ("encoder.end/encoder.final_norm.out",)


def test_an_encoder_without_a_final_norm_is_read_at_its_last_layer() -> None:
    tiny = Architecture(
        name="tiny", kind="encoder_decoder", layers=1, encoder_layers=2, hidden=8, heads=2, vocab=16,
        final_norm=False,
    )  # fmt: skip
    ops = {instance.name: instance for instance in wire(build_graph(tiny))}
    assert ops["decoder.0/cross.kv"].inputs == ("encoder.1/residual2",)


def test_a_position_bias_at_the_end_of_an_embedding_is_not_the_stream() -> None:
    tiny = Architecture(name="tiny", layers=1, hidden=8, heads=2, vocab=16, position_buckets=4)
    ops = {instance.name: instance for instance in wire(build_graph(tiny))}
    assert ops["layer.0/norm1"].inputs == ("embedding/embedding.out",)


def test_what_kernels_make_on_the_way_comes_from_what_they_make_it_of() -> None:
    experts = by_name("mixtral-8x7b")["layer.3/experts.activation"]
    assert experts.inputs[-1] == "layer.3/router.out"
    assert by_name("vit-base")["head/logits"].inputs == ("head/final_norm.out",)
    assert by_name("bert-base")["head/pooler"].inputs == ("layer.11/norm2.out",)


def test_a_part_of_a_model_is_given_its_stream() -> None:
    graph = build_graph(load_model("llama3-8b"))
    first = wire(replace(graph, segments=graph.segments[1:2]))[0]
    assert (first.name, first.inputs) == ("layer.0/norm1", ("input/stream",))


def test_a_merging_layer_reads_the_last_of_the_stage_before() -> None:
    ops = by_name("swinv2-tiny")
    assert ops["layer.2/merge.join"].inputs == ("layer.1/residual2",)
    assert ops["layer.3/attention.partition"].inputs == ("layer.2/residual2",)
    assert ops["layer.0/attention.bias.up"].inputs == ("input/coordinates",)
    assert [ops[f"layer.{i}/norm1"].segment for i in (1, 2, 3)] == [1, 2, 3]


def test_an_evoformer_has_two_streams() -> None:
    ops = by_name("alphafold2")
    assert ops["embedding/recycle.pair"].inputs == ("input/previous_pair",)
    assert ops["layer.0/row.pair_norm"].inputs == ("embedding/embedding.pair",)
    assert ops["layer.7/row.norm"].inputs == ("layer.6/msa_transition.residual",)
    assert ops["layer.7/outer.residual"].inputs == (
        "layer.6/pair_transition.residual", "layer.7/outer.output.out"
    )  # fmt: skip
    assert ops["head/distances"].inputs == ("layer.47/pair_transition.residual",)
