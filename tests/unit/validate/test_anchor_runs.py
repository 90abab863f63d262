"""Tables of a user's runs as anchors, and tables of runs corrected by them."""

from pathlib import Path

import numpy as np
import pytest

from trainwright.cluster.load import load_cluster
from trainwright.cost.load import load_constants
from trainwright.errors import BadInput
from trainwright.validate.anchor_runs import anchor_predictions, measure_anchor
from trainwright.validate.compare import ranges
from trainwright.validate.dataset import build_dataset, load_rows, predict

HEADER = (
    "id,framework,release,hardware,gpus,model,layers,hidden,heads,kv_heads,ffn_hidden,gated_ffn,vocab,seq_len,"
    "global_batch,micro_batch,tp,pp,zero,precision,interconnect,step_time_s,memory_gib\n"
)
SIZES = "llama3-8b,32,4096,32,8,14336,1,128256,8192"


def write(path: Path, *rows: str) -> Path:
    path.write_text(HEADER + "".join(f"{row}\n" for row in rows))
    return path


def row(
    id: str, step_s: str = "3.0", memory: str = "", framework: str = "megatron-core",
    hardware: str = "h100", interconnect: str = "", gpus: int = 64,
) -> str:  # fmt: skip
    cells = (id, framework, "", hardware, gpus, SIZES, 128, 1, 2, 1, 1, "bf16", interconnect, step_s, memory)
    return ",".join(map(str, cells))


def test_runs_have_what_was_measured_and_what_is_predicted(tmp_path: Path) -> None:
    path = write(tmp_path / "runs.csv", row("a", memory="50"), row("b", step_s="", memory="51"))
    first, second = measure_anchor(path, load_constants()).runs
    assert (first.id, first.step_s, first.memory_bytes) == ("a", 3.0, 50 * 2**30)
    assert first.predicted_step_s
    assert (second.step_s, second.predicted_step_s) == (None, None)
    assert first.conditions.stack == "megatron-core"
    assert (first.conditions.precision, first.conditions.layers) == ("16-bit", 32)


def test_rows_that_cannot_be_used_are_counted_by_reason(tmp_path: Path) -> None:
    path = write(tmp_path / "runs.csv", row("a"), row("b", step_s=""), row("c", hardware="abacus"))
    anchor = measure_anchor(path, load_constants())
    assert [each.id for each in anchor.runs] == ["a"]
    assert len(anchor.notes) == 2
    assert "neither step_time_s nor memory_gib" in anchor.notes[0]
    assert "abacus" in anchor.notes[1]


def test_a_table_without_measured_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has no run to anchor to"):
        measure_anchor(write(tmp_path / "runs.csv", row("a", step_s="")), load_constants())


def test_runs_on_the_device_of_a_cluster_are_on_its_network(tmp_path: Path) -> None:
    path = write(tmp_path / "runs.csv", row("a"), row("b", interconnect="3200 Gbps/node"))
    where = "h100:16x4@1Gbps"
    usual = measure_anchor(path, load_constants()).runs
    slow = measure_anchor(path, load_constants(), where, load_cluster(where)).runs
    assert (slow[0].predicted_step_s or 0.0) > 1.5 * (usual[0].predicted_step_s or 0.0)


def test_runs_on_more_devices_than_a_cluster_joins_are_elsewhere(tmp_path: Path) -> None:
    path, where = write(tmp_path / "runs.csv", row("a")), "h100:2x2@10Gbps"
    found = measure_anchor(path, load_constants(), where, load_cluster(where)).runs
    assert found == measure_anchor(path, load_constants()).runs


def test_rows_of_a_table_are_corrected_where_a_run_says_something_of_them(tmp_path: Path) -> None:
    constants = load_constants()
    anchor = measure_anchor(write(tmp_path / "own.csv", row("a", "2.5", "60"), row("b", "2.5")), constants)
    others = write(tmp_path / "table.csv", row("c"), row("d", framework="torchtitan"), row("e", hardware="?"))
    dataset = build_dataset(load_rows(others), constants.stack)
    before, within = predict(dataset, constants.stack, constants.efficiency), ranges(dataset, constants)
    after, narrowed, count = anchor_predictions(dataset, before, within, anchor, constants)
    assert count == 1
    assert before.step_s[0] < after.step_s[0] < 2.5
    assert within.low[0] < narrowed.low[0] < narrowed.high[0] < within.high[0]
    assert after.memory_bytes[0] != before.memory_bytes[0]
    assert (after.step_s[1], narrowed.low[1]) == (before.step_s[1], within.low[1])
    assert np.isnan(after.step_s[2])
