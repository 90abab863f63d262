"""Which operators of the catalog's models can be carried out."""

import pytest

pytest.importorskip("torch")

from tests.runtime.small import SMALL, build_small
from trainwright.errors import BadInput
from trainwright.model.build import build_graph
from trainwright.model.load import load_model
from trainwright.runtime.whole import build_kernels


def test_every_operator_of_every_family_has_a_kernel() -> None:
    graphs = [build_small(name) for name in SMALL]
    graphs += [build_graph(load_model(name)) for name in ("alphafold2-930m", "mbart-large-50", "deepseek-v3")]
    assert all(build_kernels(graph) for graph in graphs)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("t5-small", 'op "position_bias": a relative position bias has no kernel'),
        ("gpt-oss-20b", "attention with sinks has no kernel"),
    ],
)
def test_what_has_none_is_refused_by_name(model: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        build_kernels(build_graph(load_model(model)))
