"""The commands as users run them: output, messages, exit codes."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import fails, trainwright
from trainwright.search.families import FAMILY_KNOBS

SMALL = ("plan", "gpt2", "h100:8", "--batch", "64")


class TestPlan:
    def test_it_answers_every_question(self) -> None:
        result = trainwright(*SMALL, "--tokens", "300B")
        assert result.returncode == 0, result.stderr
        for words in ("strategy", "MFU", "days", "kWh", "Time of a step", "Memory of the fullest device",
                      "What limits it", "What if", "memory capacity", "latency", "Searched"):  # fmt: skip
            assert words in result.stdout
        assert max(map(len, result.stdout.splitlines())) <= 100

    def test_the_same_question_has_the_same_answer(self) -> None:
        assert trainwright(*SMALL).stdout == trainwright(*SMALL).stdout

    def test_json_is_one_tree(self) -> None:
        tree = json.loads(trainwright(*SMALL, "--json", "--top", "3").stdout)
        assert len(tree["plans"]) == 3
        plan = tree["plans"][0]
        assert plan["low_s"] < plan["step_s"] < plan["high_s"]
        assert plan["step_s"] == pytest.approx(sum(plan["time_s"].values()))
        assert {each["resource"] for each in tree["what_if"]} >= {"compute", "memory capacity", "latency"}

    def test_files_hold_what_the_screen_does_not(self, tmp_path: Path) -> None:
        table, tree = tmp_path / "plans.csv", tmp_path / "plan.json"
        trainwright(*SMALL, "--csv", str(table), "--json", str(tree), "--quiet")
        rows = list(csv.DictReader(table.open(encoding="utf-8")))
        assert len(rows) == 10
        assert float(rows[0]["step_s"]) == json.loads(tree.read_text(encoding="utf-8"))["plans"][0]["step_s"]

    def test_constraints_hold(self) -> None:
        tree = json.loads(
            trainwright(*SMALL, "--json", "--fix", "pp=4", "--fix", "mb=2", "--max-tp", "1").stdout
        )
        for plan in tree["plans"]:
            strategy = plan["strategy"]
            assert (strategy["pp"], strategy["micro_batch"], strategy["tp"]) == (4, 2, 1)

    def test_rows_differ_in_degrees_or_sharding(self) -> None:
        plans = json.loads(trainwright(*SMALL, "--top", "8", "--json").stdout)["plans"]
        families = {tuple(plan["strategy"][knob] for knob in FAMILY_KNOBS) for plan in plans}
        assert len(families) == len(plans) == 8
        assert [plan["step_s"] for plan in plans] == sorted(plan["step_s"] for plan in plans)
        for plan in plans:
            variants = plan["variant_strategies"]
            assert variants[0]["text"] == plan["strategy"]["text"]
            assert variants[0]["step_s"] == pytest.approx(plan["step_s"])
            assert plan["variants"] == len({each["text"] for each in variants}) == len(variants)
            assert plan["step_s"] <= 1.01 * min(each["step_s"] for each in variants)

    def test_the_table_the_csv_and_the_json_count_the_same_variants(self, tmp_path: Path) -> None:
        rows, tree, page = (tmp_path / name for name in ("rows.csv", "tree.json", "page.html"))
        files = ("--csv", str(rows), "--json", str(tree), "--report", str(page))
        shown = trainwright("plan", "llama3-8b", "h100:16", "--batch", "64", "--top", "8", *files).stdout
        counts = [plan["variants"] for plan in json.loads(tree.read_text())["plans"]]
        with rows.open() as file:
            assert [int(row["variants"]) for row in csv.DictReader(file)] == counts
        most = max(counts)
        assert most > 1
        assert f"{most} variants within 1 %" in shown
        assert f'"variants": "{most}"' in page.read_text() or f">{most}</td>" in page.read_text()

    def test_all_variants_are_the_fastest_strategies_one_by_one(self) -> None:
        tree = json.loads(trainwright(*SMALL, "--top", "40", "--all-variants", "--json").stdout)
        plans = tree["plans"]
        assert "variants" not in plans[0]
        assert len({plan["strategy"]["text"] for plan in plans}) == len(plans) == 40
        families = {tuple(plan["strategy"][knob] for knob in FAMILY_KNOBS) for plan in plans}
        assert len(families) < 40
        assert not any("Ranked by" in note for note in tree["notes"])

    def test_only_what_the_stack_can_run_is_searched(self) -> None:
        tree = json.loads(trainwright("plan", "gpt2", "h100:8", "--stack", "llm-foundry", "--json").stdout)
        for plan in tree["plans"]:
            strategy = plan["strategy"]
            assert (strategy["tp"], strategy["pp"], strategy["cp"], strategy["offload"]) == (1, 1, 1, "none")
        assert any(note.startswith("llm-foundry") and " lacks " in note for note in tree["notes"])

    def test_a_range_of_batches_is_compared(self) -> None:
        tree = json.loads(trainwright("plan", "gpt2", "h100:8", "--batch-range", "8:48", "--json").stdout)
        assert {plan["global_batch"] for plan in tree["plans"]} <= {8, 16, 32, 48}
        assert "8, 16, 32, 48 sequences" in tree["notes"][1]

    @pytest.mark.parametrize("objective", ["time", "cost", "energy", "memory"])
    def test_every_objective_ranks(self, objective: str) -> None:
        tree = json.loads(trainwright(*SMALL, "--objective", objective, "--json").stdout)
        assert tree["plans"]

    def test_the_front_trades_time_for_memory(self) -> None:
        front = json.loads(trainwright(*SMALL, "--pareto", "--json").stdout)["front"]
        steps, sizes = [p["step_s"] for p in front], [p["total_bytes"] for p in front]
        assert steps == sorted(steps)
        assert sizes == sorted(sizes, reverse=True)

    def test_a_price_changes_the_dollars(self) -> None:
        def dollars(price: str) -> float:
            return float(
                json.loads(trainwright(*SMALL, "--price", price, "--json").stdout)["plans"][0]["budget"][
                    "dollars"
                ]
            )

        assert dollars("4 $/h") == pytest.approx(2 * dollars("2 $/h"))

    def test_constants_that_are_borrowed_are_named(self) -> None:
        assert "No training runs on gaudi3 were fitted" in trainwright("plan", "gpt2", "gaudi3:8").stdout
        assert "No runs of deepspeed were fitted" in trainwright(*SMALL, "--stack", "deepspeed").stdout

    @pytest.mark.parametrize("objective", ["energy", "memory"])
    def test_a_resource_is_not_credited_with_a_change_of_plan(self, objective: str) -> None:
        tree = json.loads(trainwright(*SMALL, "--objective", objective, "--json").stdout)
        winner = tree["plans"][0]["strategy"]["text"]
        better = [each for each in tree["what_if"] if each["resource"] != "memory capacity"]
        assert {each["strategy"]["text"] for each in better} == {winner}
        assert all(0 <= each["faster"] <= 0.25 + 1e-9 for each in better)

    def test_activations_on_the_host_are_a_cause_like_any_other(self) -> None:
        result = trainwright(*SMALL, "--fix", "offload=activations", "--fix", "overlap=off")
        assert result.returncode == 0, result.stderr
        assert "offload-activations" in result.stdout

    def test_the_runs_that_constants_rest_on_are_counted(self) -> None:
        text = trainwright(*SMALL).stdout
        assert re.search(r"Fitted on [0-9,]+ runs on hopper devices\.", text)

    @pytest.mark.parametrize(
        ("device", "stack"), [("h100", "megatron-core"), ("tpu-v5p", "maxtext"), ("gaudi2", "generic")]
    )
    def test_the_default_software_is_that_of_the_device(self, device: str, stack: str) -> None:
        tree = json.loads(trainwright("plan", "gpt2", f"{device}:8", "--batch", "64", "--json").stdout)
        assert tree["stack"] == stack
        assert "(default for " in tree["notes"][0]

    def test_software_that_is_asked_for_is_no_default(self) -> None:
        tree = json.loads(trainwright(*SMALL, "--stack", "generic", "--json").stdout)
        assert "default for" not in tree["notes"][0]

    def test_a_device_without_bf16_trains_in_fp16(self) -> None:
        tree = json.loads(trainwright("plan", "gpt2", "v100:8", "--batch", "64", "--json").stdout)
        assert {plan["strategy"]["precision"] for plan in tree["plans"]} == {"fp16"}


class TestBadInput:
    def test_a_precision_without_a_rate_is_told(self) -> None:
        words = '--precision "fp8": a100-80gb has no rate for it; use one of fp32, bf16, fp16'
        assert words in fails("plan", "gpt2", "a100:8", "--precision", "fp8")
        assert words in fails("plan", "gpt2", "a100:8", "--fix", "precision=fp8")

    def test_a_count_beyond_reason_is_told(self) -> None:
        assert "more than 1,000,000 devices" in fails("plan", "gpt2", "h100:999999999")
        assert "more than 100,000,000" in fails(*SMALL[:3], "--batch", "100000001")
        assert "more than 100,000,000 sequences" in fails(*SMALL[:3], "--batch-tokens", "1e18")
        assert "is not finite" in fails(*SMALL, "--tokens", "1e999")
        assert "is zero" in fails(*SMALL, "--tokens", "0")

    def test_a_range_needs_two_ends(self) -> None:
        assert '"5": has no end; write it like 512:4096' in fails(*SMALL[:3], "--batch-range", "5")

    def test_line_ends_in_what_a_user_wrote_stay_on_the_line(self) -> None:
        fails("plan", "a\nb", "h100:8")
        fails(*SMALL, "--fi\nxx")

    def test_a_constraint_is_never_ignored(self) -> None:
        assert "is not a part of 8 devices" in fails(*SMALL, "--fix", "hsdp=3")
        assert "a stage has 12 layers" in fails(*SMALL, "--fix", "recompute_layers=400")
        assert "is less than 1" in fails(*SMALL, "--fix", "tp=0")
        assert "is neither on nor off" in fails(*SMALL, "--fix", "overlap=5")

    def test_an_unknown_model_suggests_the_nearest(self) -> None:
        assert 'did you mean "llama3-8b"?' in fails("plan", "lama3-8b", "h100:8")

    def test_an_unknown_device_suggests_the_nearest(self) -> None:
        assert 'did you mean "h100"?' in fails("plan", "gpt2", "h101:8")

    def test_an_unknown_knob_suggests_the_nearest(self) -> None:
        assert 'did you mean "zero"?' in fails(*SMALL, "--fix", "zeros=1")

    def test_an_unknown_stack_objective_or_precision_suggests_the_nearest(self) -> None:
        assert 'did you mean "nanotron"?' in fails(*SMALL, "--stack", "nanotrn")
        assert 'did you mean "time"?' in fails(*SMALL, "--objective", "tim")
        assert 'did you mean "bf16"?' in fails(*SMALL, "--precision", "bf15")

    def test_a_bare_number_needs_a_unit(self) -> None:
        assert 'has no unit; write it like "2.50 $/h"' in fails(*SMALL, "--price", "2.5")

    def test_a_degree_must_divide_the_devices(self) -> None:
        assert "does not divide 8 devices" in fails(*SMALL, "--fix", "tp=3")

    def test_fixed_degrees_must_multiply_to_the_devices(self) -> None:
        fixed = ("--fix", "tp=2", "--fix", "pp=2", "--fix", "cp=1", "--fix", "dp=4")
        assert "tp·cp·pp·dp = 16" in fails(*SMALL, *fixed)

    def test_a_batch_that_no_dp_divides_is_told(self) -> None:
        assert "does not divide the batch 7" in fails(
            "plan", "gpt2", "h100:8", "--batch", "7", "--fix", "dp=8"
        )

    def test_a_word_is_no_number(self) -> None:
        assert "is not a whole number above zero" in fails(*SMALL[:3], "--batch", "many")
        assert "is not a whole number above zero" in fails(*SMALL, "--top", "0")

    def test_a_config_that_is_not_json_is_told(self, tmp_path: Path) -> None:
        path = tmp_path / "config.json"
        path.write_text("{not json", encoding="utf-8")
        assert "is not JSON" in fails("plan", str(path), "h100:8")

    def test_a_config_that_lacks_a_field_names_it(self, tmp_path: Path) -> None:
        path = tmp_path / "config.json"
        path.write_text(json.dumps({"model_type": "llama", "hidden_size": 64}), encoding="utf-8")
        assert "num_hidden_layers" in fails("plan", str(path), "h100:8")

    def test_a_cluster_file_with_a_bare_number_or_unknown_key_is_told(self, tmp_path: Path) -> None:
        path = tmp_path / "cluster.toml"
        path.write_text('count = 8\n[device]\nbase = "h100"\npeak_power = 700\n', encoding="utf-8")
        assert "700 W" in fails("plan", "gpt2", str(path))
        path.write_text('counts = 8\ndevice = "h100"\n', encoding="utf-8")
        assert 'did you mean "count"?' in fails("plan", "gpt2", str(path))

    def test_an_unknown_option_or_command_is_one_line(self) -> None:
        fails(*SMALL, "--fixx", "pp=4")
        fails("plann")

    def test_nothing_feasible_is_exit_code_2_with_the_nearest_miss(self) -> None:
        message = fails("plan", "llama3-405b", "h100:1", "--batch", "1", code=2)
        assert "does not fit on 1 h100-sxm-80gb" in message
        assert "nearest miss" in message
        assert "devices would fit" in message


def test_a_cluster_file_without_usable_memory_is_taken_as_stated_and_told(tmp_path: Path) -> None:
    path = tmp_path / "ours.toml"
    path.write_text(
        'count = 8\n[device]\nbase = "h100"\n[[device.memory]]\nname = "hbm"\ncapacity = "96 GiB"\n'
    )
    text = " ".join(trainwright("plan", "gpt2", str(path), "--batch", "64").stdout.split())
    assert "Usable memory of h100-sxm-80gb is not stated: its nominal 96.0 GiB are taken" in text
    assert "of 96.0 GiB" in text
    text = trainwright("plan", "gpt2", "h100:8", "--batch", "64").stdout
    assert "is not stated" not in text
    assert "of 79.1 GiB" in text


class TestCatalog:
    def test_kinds_are_listed(self) -> None:
        text = trainwright("catalog").stdout
        for name in ("h100-sxm-80gb", "dgx-h100", "llama3-8b", "megatron-core"):
            assert name in text

    def test_an_entry_shows_its_source(self) -> None:
        text = trainwright("catalog", "devices", "h100").stdout
        assert "79.1 GiB usable of nominal 80.0 GiB" in text
        assert re.search(r"memory\.hbm\.usable_memory +79\.11 GiB +certain +2025-2026 +\[4\]", text)
        assert "[4] total capacity in PyTorch out-of-memory messages" in text
        assert "NVIDIA H100 datasheet" in text
        entry = json.loads(trainwright("catalog", "devices", "h100", "--json").stdout)
        assert entry["memory"][0]["usable_bytes"] == pytest.approx(79.11 * 2**30)
        assert entry["sources"]["peak.bf16"]["confidence"] == "secondary"

    @pytest.mark.parametrize("kind", ["devices", "networks", "models", "stacks"])
    def test_every_entry_of_a_kind_has_a_source_in_json(self, kind: str) -> None:
        entries = json.loads(trainwright("catalog", kind, "--json").stdout)
        assert entries
        assert all(entry["source"] for entry in entries)

    def test_an_unknown_kind_or_name_suggests_the_nearest(self) -> None:
        assert 'did you mean "devices"?' in fails("catalog", "device")
        assert 'did you mean "gpt2"?' in fails("catalog", "models", "gpt-2x")


class TestValidate:
    HEADER = "id,source,hardware,gpus,layers,hidden,heads,seq_len,global_batch,framework,step_time_s,my_note"

    def table(self, tmp_path: Path, *rows: str) -> str:
        path = tmp_path / "runs.csv"
        path.write_text("\n".join([self.HEADER, *rows]) + "\n", encoding="utf-8")
        return str(path)

    def test_predictions_stand_beside_the_input(self, tmp_path: Path) -> None:
        out = tmp_path / "out.csv"
        runs = self.table(
            tmp_path,
            'a,here,H100-SXM-80GB,8,12,768,12,1024,64,megatron-core,0.1,"kept, as it is"',
            "b,here,no-such-device,8,12,768,12,1024,64,megatron-core,0.1,",
        )
        result = trainwright("validate", runs, "--out", str(out))
        assert result.returncode == 0, result.stderr
        good, bad = csv.DictReader(out.open(encoding="utf-8"))
        assert (
            float(good["predicted_low_s"])
            < float(good["predicted_step_time_s"])
            < float(good["predicted_high_s"])
        )
        assert (good["fits"], good["error"], good["my_note"]) == ("1", "", "kept, as it is")
        assert bad["predicted_step_time_s"] == ""
        assert "no-such-device" in bad["error"]
        assert "Errors of step time per source" in result.stdout
        assert "1 rows not predicted" in result.stdout

    def test_a_bad_cell_stops_no_other_row(self, tmp_path: Path) -> None:
        good = "H100-SXM-80GB,8,12,768,12,1024,64,megatron-core"
        bad = [good.replace("768", "nan"), good.replace("8,12,", "inf,12,"), good.replace(",64,", ",1e300,")]
        rows = [f"{index},here,{cells},0.1," for index, cells in enumerate([good, *bad])]
        out = tmp_path / "out.csv"
        rows.append(f"4,here,{good},-1,")
        result = trainwright("validate", self.table(tmp_path, *rows), "--out", str(out))
        assert result.returncode == 0, result.stderr
        assert "Warning" not in result.stderr
        assert [bool(row["error"]) for row in csv.DictReader(out.open(encoding="utf-8"))] == [False] + 4 * [
            True
        ]

    def test_errors_are_json_too(self, tmp_path: Path) -> None:
        runs = self.table(tmp_path, "a,here,H100-SXM-80GB,8,12,768,12,1024,64,megatron-core,0.1,")
        tree = json.loads(trainwright("validate", runs, "--json").stdout)
        assert tree["errors"]["source"][0]["name"] == "here"

    def test_an_empty_table_is_told(self, tmp_path: Path) -> None:
        path = tmp_path / "runs.csv"
        path.write_text("", encoding="utf-8")
        assert "has no rows" in fails("validate", str(path))

    def test_a_malformed_table_is_told(self, tmp_path: Path) -> None:
        path = tmp_path / "runs.csv"
        path.write_text('a,b\n1,"never closed\n', encoding="utf-8")
        assert "cannot be read as CSV" in fails("validate", str(path))
        path.write_text("a,b\n1,2\n", encoding="utf-8")
        assert "lacks column hardware" in fails("validate", str(path))

    def test_a_missing_table_is_told(self, tmp_path: Path) -> None:
        assert "cannot be read" in fails("validate", str(tmp_path / "none.csv"))


def test_a_recommender_is_planned_by_its_tables_and_in_instances() -> None:
    found = json.loads(trainwright("plan", "dlrm-mlperf", "h100:16", "--json").stdout)
    assert found["plans"][0]["plan"].startswith("table-parallel tables=")
    assert [each["devices"] * each["instances"] for each in found["instances"]] == [16] * 5
    shown = trainwright("plan", "dlrm", "a100:64", "--batch", "16384").stdout
    assert "Instances beside each other" in shown
    assert "16384 samples" in shown


def test_a_simulated_sharding_has_its_closed_form_beside_it() -> None:
    found = json.loads(trainwright("simulate", "dlrm-mlperf", "h100:8", "table-parallel", "--json").stdout)
    # In a millisecond few bytes are gathered, once lowered, rather than exchanged, as that starts sooner.
    assert found["closed_form"]["step_s"] == pytest.approx(found["step_s"], rel=0.07)
    alone = trainwright("simulate", "dlrm-mlperf", "h100:1", "dp1", "mb512", "--batch", "512")
    assert "what is said of tokens is of samples" in alone.stdout


def test_what_speaks_of_layers_is_refused_for_a_recommender() -> None:
    assert "does not apply to a recommender" in fails("plan", "dlrm", "a100:64", "--fix", "pp=4")
    assert "does not divide by 64 devices" in fails("plan", "dlrm", "a100:64", "--batch", "100")
    assert "needs 2.9 TiB on the fullest" in fails("plan", "dlrm-12t", "h100:8", code=2)


def test_help_needs_no_numpy_and_no_rich() -> None:
    code = (
        "import sys; from trainwright.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'numpy', 'rich'} & set(sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_an_interrupt_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from trainwright.cli import main as module

    def interrupted(arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_run", interrupted)
    assert module.main([]) == 130
    assert capsys.readouterr().err == "trainwright: interrupted\n"


def test_a_reader_that_leaves_early_is_no_error() -> None:
    command = f"{sys.executable} -m trainwright.cli.main catalog models | head -1"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in result.stderr
    assert "BrokenPipe" not in result.stderr
