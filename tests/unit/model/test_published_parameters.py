"""Every model of the catalog has as many parameters as its authors state."""

import pytest

from trainwright.model.build import build_graph
from trainwright.model.graph import dim_sizes, parameters
from trainwright.model.load import load_entry, model_names
from trainwright.model.totals import active_parameters

PUBLISHED = [name for name in model_names() if load_entry(name).published_parameters]

# Millions per token, from the model cards; gpt-oss counts no embedding (201,088 x 2,880 = 579 million).
ACTIVE = {"deepseek-v3": 37_000, "mixtral-8x7b": 12_900, "qwen3-30b-a3b": 3_300, "kimi-k2": 32_000}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_equal_the_published_count_within_a_thousandth(name: str) -> None:
    entry = load_entry(name)
    assert parameters(build_graph(entry.architecture)) == pytest.approx(entry.published_parameters, rel=1e-3)


def test_most_of_the_catalog_has_a_published_count() -> None:
    assert len(PUBLISHED) >= 90


@pytest.mark.parametrize("name", model_names())
def test_every_entry_says_where_it_comes_from(name: str) -> None:
    assert load_entry(name).source


@pytest.mark.parametrize("name", model_names())
def test_every_dim_of_a_graph_has_a_size(name: str) -> None:
    graph = build_graph(load_entry(name).architecture)
    for segment in graph.segments:
        known = {*dim_sizes(graph, segment, batch=1, seq=1)}
        for op in segment.block.ops:
            tensors = (*op.inputs, op.output, *op.extra_outputs, *op.weights, *op.saved)
            assert {dim for tensor in tensors for dim in tensor.dims} <= known, op.name


@pytest.mark.parametrize(("name", "millions"), ACTIVE.items())
def test_a_token_meets_the_published_active_parameters(name: str, millions: int) -> None:
    active = active_parameters(build_graph(load_entry(name).architecture))
    assert active / 1e6 == pytest.approx(millions, rel=0.03)


def test_a_dense_model_is_all_active() -> None:
    graph = build_graph(load_entry("gpt2").architecture)
    assert active_parameters(graph) == parameters(graph)
