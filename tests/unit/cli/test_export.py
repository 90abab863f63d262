"""`trainwright export` and `advise` as users run them."""

import json
from pathlib import Path

from tests.commands import fails, trainwright


def test_the_winner_of_a_search_is_exported_with_its_model_and_cluster(tmp_path: Path) -> None:
    best, script = tmp_path / "best.json", tmp_path / "train.sh"
    planned = trainwright("plan", "gpt2-xl", "h100:16", "--batch", "64", "--top", "1", "--json", str(best))
    assert planned.returncode == 0, planned.stderr
    told = trainwright("export", str(best), "--to", "megatron", "--out", str(script))
    assert told.returncode == 0, told.stderr
    text = script.read_text()
    assert "--num-layers 48" in text
    assert "--global-batch-size 64" in text
    assert "--nnodes=2" in text
    assert json.loads(best.read_text())["plans"][0]["strategy"]["text"] in text


def test_what_was_exported_can_be_advised_on(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    trainwright(
        "export", "dp2 tp4 pp2 mb1 zero1 full", "--to", "megatron", "--model", "gpt2-large", "--cluster",
        "h100:16", "--batch", "64", "--out", str(script),
    )  # fmt: skip
    told = trainwright("advise", str(script), "h100:16", "--json")
    assert told.returncode == 0, told.stderr
    tree = json.loads(told.stdout)
    assert tree["configured"]["text"] == "dp2 tp4 pp2 mb1 zero1 1f1b full bf16"
    assert tree["alone"][0]["gain"] > 0
    assert tree["best"]["step_s"] < tree["today"]["step_s"]
    assert tree["steps"][-1]["after"]["strategy"]["text"] == tree["best"]["strategy"]["text"]


def test_a_plan_file_is_known_for_the_strategy_that_it_is_of(tmp_path: Path) -> None:
    plan = tmp_path / "plan.txt"
    trainwright(
        "export",
        "dp2 mb1 zero1",
        "--to",
        "trainwright",
        "--model",
        "gpt2",
        "--batch",
        "4",
        "--out",
        str(plan),
    )
    told = trainwright("export", str(plan), "--to", "deepspeed", "--model", "gpt2")
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["zero_optimization"]["stage"] == 1


def test_chakra_writes_a_directory(tmp_path: Path) -> None:
    told = trainwright(
        "export", "dp2 mb1 zero1", "--to", "chakra", "--model", "gpt2", "--cluster", "h100:2", "--batch", "2",
        "--seq", "256", "--out", str(tmp_path / "traces"),
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    assert {each.name for each in (tmp_path / "traces").iterdir()} == {
        "trace.0.et", "trace.1.et", "comm_group.json", "system.json", "network.yml", "memory.json",
    }  # fmt: skip


def test_a_model_that_does_not_divide_is_refused_with_what_to_change() -> None:
    for plan, message in (
        ("dp2 tp5", "tp 5: does not divide heads = 12 of gpt2; choose a tp that divides it"),
        ("dp2 pp15", "pp·vpp 15: is more than the 12 layers, embedding and head of gpt2; lower pp or vpp"),
    ):
        assert message in fails("export", plan, "--to", "deepspeed", "--model", "gpt2")


def test_traces_of_another_plan_are_not_mixed_with_new_ones(tmp_path: Path) -> None:
    (tmp_path / "trace.7.et").write_bytes(b"")
    told = fails(
        "export", "dp2 mb1", "--to", "chakra", "--model", "gpt2", "--cluster", "h100:2", "--batch", "2",
        "--seq", "256", "--out", str(tmp_path),
    )  # fmt: skip
    assert "holds traces of another plan (trace.7.et)" in told


def test_an_answer_whose_cluster_is_a_number_is_refused(tmp_path: Path) -> None:
    plan = {"global_batch": 8, "seq": 256, "strategy": {"text": "dp2 mb1"}}
    answer = tmp_path / "answer.json"
    answer.write_text(json.dumps({"model": "gpt2", "cluster": 7, "plans": [plan]}))
    assert "is no answer of trainwright plan" in fails("export", str(answer), "--to", "megatron")


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{}")
    assert 'did you mean "megatron"' in fails("export", "dp2", "--to", "megatrn")
    assert "is no answer of trainwright plan" in fails(
        "export", str(tmp_path / "bad.json"), "--to", "megatron"
    )
    assert "cannot express plan" in fails("export", "dp2 zero1", "--to", "torchtitan")
    assert "needs a model" in fails("export", "dp2", "--to", "chakra")
    assert "does not say which model" in fails("advise", "dp2", "h100:2")
    assert "is for 4 devices, and the cluster has 2" in fails("advise", "dp4", "h100:2", "--model", "gpt2")
    assert "only those can be told to others" in fails(
        "export", "co-shard tp=2", "--to", "megatron", "--model", "gpt2", "--cluster", "h100:2"
    )
