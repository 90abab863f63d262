"""Traces of PyTorch's profiler become timelines that compare, and constants that predict them."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from tests.commands import failure, trainwright
from tests.tools.kineto_traces import record
from trainwright.cluster.load import load_cluster
from trainwright.cost.constants import Efficiency
from trainwright.report.kineto import Event, cause_of, load_kineto, measured_timeline, step_window
from trainwright.simulate.breakdown import breakdown
from trainwright.validate.trace_fit import refine, refined_efficiency, samples_of

CPU = """count = 1
network = { name = "here", host_power = "0 W", host_bandwidth = "10 GB/s", source = "test", \
level = [{ name = "node", bandwidth = "1 GB/s", latency = "1 us" }] }
[device]
name = "cpu"
family = "cpu"
compute_units = 1
buffer = "1 MiB"
idle_power = "5 W"
peak_power = "15 W"
price_per_hour = "0 $/h"
source = "test"
peak = { fp32 = "2000 GFLOP/s", bf16 = "2000 GFLOP/s" }
memory = [{ name = "ram", capacity = "16 GiB", bandwidth = "200 GB/s" }]
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kineto") / "trace.json"
    record(path)
    return path


def test_the_parts_of_a_measured_step_add_up_to_it(trace: Path) -> None:
    timeline = measured_timeline([load_kineto(trace)])
    found = {cause: float(each[0]) for cause, each in breakdown(timeline).time_s.items()}
    assert sum(found.values()) == pytest.approx(timeline.step_s)
    assert found["matmul"] > 0
    assert found["optimizer"] > 0
    assert found["streaming"] > 0


def test_pieces_of_nested_operators_never_overlap(trace: Path) -> None:
    timeline = measured_timeline([load_kineto(trace)])
    order = np.argsort(timeline.start_s, kind="stable")
    own = timeline.table.lane[order]
    for unit in set(own.tolist()):
        starts, ends = timeline.start_s[order][own == unit], timeline.end_s[order][own == unit]
        assert (starts[1:] >= ends[:-1] - 1e-7).all()


def test_every_marked_step_can_be_chosen(trace: Path) -> None:
    found = load_kineto(trace)
    first, last = step_window(found, 1), step_window(found)
    assert first[1] <= last[0] + 1e-6
    assert step_window(found, 2) == last
    assert measured_timeline([found], 1).step_s == pytest.approx(first[1] - first[0])


def test_a_compressed_trace_is_read_too(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "trace.json.gz").write_bytes(gzip.compress(trace.read_bytes()))
    assert load_kineto(tmp_path / "trace.json.gz").events == load_kineto(trace).events


@pytest.mark.parametrize(
    ("name", "about", "cause"),
    [
        ("sm90_xmma_gemm_bf16bf16_bf16f32", {}, "matmul"),
        ("flash_fwd_kernel<...>", {}, "attention"),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", {"Process Group Description": "mesh_tp"}, "tp"),
        ("ncclDevKernel_AllGather_RING_LL", {"Process Group Description": "DATA_PARALLEL_GROUP"}, "dp"),
        ("ncclDevKernel_SendRecv", {}, "pp"),
        ("Memcpy DtoH (Device -> Pinned)", {}, "offload"),
        ("void at::native::multi_tensor_apply_kernel<...>", {}, "optimizer"),
        ("void at::native::vectorized_elementwise_kernel<4, ...>", {}, "streaming"),
    ],
)
def test_kernels_are_counted_by_what_they_do(name: str, about: dict[str, str], cause: str) -> None:
    event = Event(name=name, category="kernel", thread=(0, 7), start_s=0.0, end_s=1.0, about=about)
    assert cause_of(event) == cause


def test_refined_constants_predict_what_was_measured(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "cpu.toml").write_text(CPU)
    cluster, before = load_cluster(str(tmp_path / "cpu.toml")), Efficiency(kernel_s=0.0)
    found = refine([load_kineto(trace)], cluster, before)
    assert {"gemm", "memory"} <= {each.constant for each in found}
    after = refined_efficiency(before, found)
    samples = list(samples_of(load_kineto(trace), cluster, after))
    for constant in ("gemm", "memory"):
        own = [each for each in samples if each.constant == constant]
        measured = sum(each.seconds for each in own)
        assert sum(each.predicted_s for each in own) == pytest.approx(measured, rel=0.02)


def test_calibrate_writes_a_cluster_that_commands_take(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "cpu.toml").write_text(CPU)
    refined = tmp_path / "refined.toml"
    result = trainwright("calibrate", str(tmp_path / "cpu.toml"), "--from", str(trace), "--out", str(refined))
    assert result.returncode == 0, result.stderr
    (tmp_path / "tiny.toml").write_text("layers = 2\nhidden = 256\nheads = 4\nvocab = 512\nmax_seq = 128\n")
    model = str(tmp_path / "tiny.toml")
    steps = []
    for cluster in (tmp_path / "cpu.toml", refined):
        told = trainwright("simulate", model, str(cluster), "dp1 mb1 fp32", "--batch", "2", "--json")
        assert told.returncode == 0, told.stderr
        steps.append(json.loads(told.stdout)["step_s"])
    assert steps[0] < steps[1]  # two cores reach less than the 2 TFLOP/s that the file boasts


def test_a_prediction_and_a_profile_are_compared_by_cause(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "cpu.toml").write_text(CPU)
    (tmp_path / "tiny.toml").write_text("layers = 2\nhidden = 256\nheads = 4\nvocab = 512\nmax_seq = 128\n")
    predicted = tmp_path / "predicted.json"
    told = trainwright(
        "simulate", str(tmp_path / "tiny.toml"), str(tmp_path / "cpu.toml"), "dp1 mb1 fp32", "--batch", "2",
        "--trace", str(predicted),
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    result = trainwright("compare", str(predicted), str(trace), "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    differences = sum(each["difference_s"] for each in found["causes"])
    assert differences == pytest.approx(found["step"]["difference_s"], rel=1e-3)
    assert {"matmul", "optimizer"} <= {each["name"] for each in found["causes"]}


def test_a_step_that_was_not_recorded_is_an_error(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text('{"traceEvents": []}')
    result = trainwright("calibrate", "h100:8", "--from", str(tmp_path / "bad.json"))
    assert "has no events" in failure(result, 1)
