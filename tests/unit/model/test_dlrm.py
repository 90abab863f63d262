"""DLRM: looked-up tables, two MLPs, the products of features between them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.builders import free_stack, perfect, round_cluster, round_device
from trainwright.cost.operators import Machine, op_time
from trainwright.errors import BadInput
from trainwright.model.architecture import Architecture
from trainwright.model.build import build_graph
from trainwright.model.graph import dim_sizes, parameters, segment_parameters
from trainwright.model.load import load_model
from trainwright.model.totals import forward_flops
from trainwright.plan.zoo import build_zoo
from trainwright.program.lower import lower
from trainwright.program.setting import Setting
from trainwright.program.traffic import traffic

# Three features of four numbers: two tables of ten rows, and the bottom MLP's result.
TINY = Architecture(
    name="tiny", kind="dlrm", layers=4, hidden=4, heads=1, tables=2, table_rows=10, pooling=3,
    dense_features=5, bottom=(8, 4), top=(16, 1),
)  # fmt: skip


def test_parameters_are_rows_times_width_and_both_mlps_without_biases() -> None:
    graph = build_graph(TINY)
    # Features 2 + 1 make 3 pairs, which the top MLP reads beside the 4 numbers of the bottom.
    mlps = 5 * 8 + 8 * 4 + (3 + 4) * 16 + 16 * 1
    assert segment_parameters(graph, graph.segments[0]) == 2 * 10 * 4
    assert parameters(graph) == 2 * 10 * 4 + mlps


def test_flops_are_those_of_the_layers_and_of_all_products_of_features() -> None:
    # The kernel computes the whole matrix of products, 3 x 3 of 4 numbers; lookups are no FLOPs.
    layers = 5 * 8 + 8 * 4 + (3 + 4) * 16 + 16
    assert forward_flops(build_graph(TINY), 6, 1) == 6 * 2 * (layers + 3 * 3 * 4)


def test_a_lookup_takes_the_bytes_of_its_rows_over_the_bandwidth() -> None:
    graph = build_graph(TINY)
    segment = graph.segments[0]
    (lookup,) = segment.block.ops
    sizes = {dim: np.array([float(n)]) for dim, n in dim_sizes(graph, segment, 1000, 1).items()}
    machine = Machine(device=round_device(), efficiency=perfect(), stack=free_stack(), precision="bf16")
    time = op_time(lookup, sizes, machine)
    # 1,000 samples x 2 tables: 3 indices of 4 bytes, 3 rows of 8 bytes read and one written, at 1 TB/s.
    forward = 2000 * (3 * 4 + 3 * 8 + 8)
    assert time.forward_s[0] == pytest.approx(forward / 1e12)
    # Backward each row is written too, and its 4 bytes of state are read and written.
    assert time.data_s[0] == pytest.approx((forward + 2000 * (3 * 8 + 2 * 3 * 4)) / 1e12)


def test_the_public_workload_moves_the_bytes_that_its_authors_publish() -> None:
    graph = build_graph(load_model("dlrm"))
    architecture = load_model("dlrm-1.2t")
    assert (len(architecture.bottom), len(architecture.top)) == (7, 12)
    assert 4 * (parameters(graph) - segment_parameters(graph, graph.segments[0])) == 114_823_168
    setting = Setting(
        graph=graph, cluster=round_cluster(16), stack=free_stack(), efficiency=perfect(), seq=1,
        precision="fp32",
    )  # fmt: skip
    program = lower(setting, build_zoo("table-parallel", graph, 16, 512 * 16, precision="fp32"))
    exchanged = [step.move for step in program.routes[0].steps if step.kind == "all_to_all"]
    # What a device holds before each of the two is 4,194,304 bytes; it keeps a sixteenth.
    assert [move.sent_bytes for move in exchanged if move] == [4_194_304 * 15 / 16] * 2
    reduced = [each for each in traffic(program) if each.kind == "all_reduce"]
    assert sum(each.sent_bytes for each in reduced) == pytest.approx(114_823_168 * 2 * 15 / 16)


@pytest.mark.parametrize(
    ("name", "size"), [("dlrm-1.2t", 1.2e12), ("dlrm-12t", 12e12), ("dlrm-mlperf", 24e9)]
)
def test_models_have_the_parameters_in_their_names(name: str, size: float) -> None:
    assert parameters(build_graph(load_model(name))) == pytest.approx(size, rel=2e-3)


def test_a_plan_that_copies_tables_is_refused() -> None:
    graph = build_graph(TINY)
    setting = Setting(graph=graph, cluster=round_cluster(2), stack=free_stack(), efficiency=perfect(), seq=1)
    with pytest.raises(BadInput, match=r"2 copies.*row by row.*table-parallel"):
        lower(setting, build_zoo("data-parallel", graph, 2, 4))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tables": 0}, "tables 0: a recommender needs one"),
        ({"bottom": (8, 5)}, "bottom .*the last of them 4"),
        ({"top": (16, "x")}, "top .*widths of its layers"),
        ({"layers": 3}, "bottom and top have 2 . 2"),
    ],
)
def test_what_a_recommender_lacks_is_told(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        replace(TINY, **changes)
