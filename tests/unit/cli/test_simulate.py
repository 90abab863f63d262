"""`trainwright simulate` as users run it: output, files, messages, exit codes."""

import json
from pathlib import Path

import pytest

from tests.commands import fails, failure, trainwright
from trainwright.plan.text import parse_plan

SMALL = ("simulate", "gpt2", "h100:8")
PIPELINE = """
plan two stages
devices 2
batch 1
microbatches 2
stage embedding,layer.0-5
stage layer.6-11,head
assign embedding,layer.0-5 0
assign layer.6-11,head 1
order 0: F0.0 F0.1 B0.0 B0.1
order 1: F1.0 B1.0 F1.1 B1.1
"""


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    path = tmp_path / "two.plan"
    path.write_text(PIPELINE, encoding="utf-8")
    return path


class TestOutput:
    def test_a_strategy_is_told_in_full(self) -> None:
        result = trainwright(*SMALL, "dp2 tp2 sp pp2 mb1 zero1 1f1b full", "--batch", "16", "--free")
        assert result.returncode == 0, result.stderr
        for words in ("Plan dp2 tp2 sp pp2 mb1 zero1 1f1b full bf16: 8 devices in 2 places, 8 microbatches",
                      "MFU", "Closed form", "It fits", "Time of a step", "recompute", "bubble",
                      "Memory when fullest", "What holds most on", "Collectives", "reduce-scatter",
                      "Critical path", ", backward", "The path in all", "What if it took no time",
                      "Schedule", "devices 4-7", ". idle"):  # fmt: skip
            assert words in result.stdout
        assert max(map(len, result.stdout.splitlines())) <= 100

    def test_words_of_a_plan_need_no_quotes(self) -> None:
        quoted = trainwright(*SMALL, "dp8 mb1 zero3", "--batch", "16").stdout
        assert quoted == trainwright(*SMALL, "--batch", "16", "dp8", "mb1", "zero3").stdout

    def test_json_is_one_tree_whose_parts_add_up(self) -> None:
        tree = json.loads(trainwright(*SMALL, "dp4 pp2 mb1 zero1", "--batch", "16", "--json").stdout)
        spent = tree["time_s"].values()
        assert sum(each["busiest_s"] for each in spent) == pytest.approx(tree["step_s"])
        assert sum(each["mean_s"] for each in spent) == pytest.approx(tree["step_s"])
        for need in tree["memory"]:
            assert sum(need["category_bytes"].values()) == pytest.approx(need["total_bytes"])
        assert [need["stages"] for need in tree["memory"]] == [[0], [1]]
        assert tree["closed_form"]["step_s"] == pytest.approx(tree["step_s"], rel=0.1)
        assert tree["fits"] is True

    def test_power_and_money_are_those_of_the_same_strategy_in_plan(self) -> None:
        run = ("--batch", "64", "--tokens", "1T", "--own", "--grid", "100 g/kWh", "--failures",
               "0.01 /device-day", "--json")  # fmt: skip
        planned = json.loads(
            trainwright("plan", "gpt2", "h100:8", *run, "--fix", "zero=1", "--top", "1").stdout
        )["plans"][0]
        words = {name: value for name, value in planned["strategy"].items() if name in ("dp", "tp", "pp")}
        strategy = " ".join(f"{name}{value}" for name, value in words.items())
        strategy += f" mb{planned['strategy']['micro_batch']} zero1 {planned['strategy']['recompute']}"
        simulated = json.loads(trainwright(*SMALL, strategy, *run).stdout)
        assert simulated["step_s"] == pytest.approx(planned["step_s"], rel=0.03)
        for name in ("device_w", "power_w", "joules_per_token", "tokens_per_joule"):
            assert simulated[name] == pytest.approx(planned[name], rel=0.03)
        assert simulated["goodput"]["share"] == pytest.approx(planned["goodput"]["share"], rel=0.01)
        for name in ("tokens", "days", "dollars", "dollars_per_million_tokens", "kwh", "co2e_kg"):
            assert simulated["budget"][name] == pytest.approx(planned["budget"][name], rel=0.04)
        assert simulated["budget"]["co2e_kg"] == pytest.approx(0.1 * simulated["budget"]["kwh"])

    def test_a_run_is_told_with_its_energy(self) -> None:
        text = trainwright(*SMALL, "dp8 mb1 zero3", "--batch", "16", "--tokens", "1T").stdout
        for words in ("Token budget: 1 Ttokens", "Rented at 2.99 $", "per million tokens", "W/device",
                      "per token", "tokens per joule", "CO₂e", "Goodput"):  # fmt: skip
            assert words in text

    def test_a_plan_of_the_zoo_has_parameters(self) -> None:
        tree = json.loads(trainwright(*SMALL, "co-shard tp=2 chunks=3", "--batch", "16", "--json").stdout)
        assert tree["plan"] == "co-shard tp=2 chunks=3"
        assert tree["closed_form"] is None
        assert tree["hfu"] > tree["mfu"]  # it recomputes

    def test_a_name_of_the_zoo_may_be_a_word_of_a_strategy(self) -> None:
        def plan(*words: str) -> str:
            return str(json.loads(trainwright(*SMALL, *words, "--batch", "16", "--json").stdout)["plan"])

        assert plan("gpipe pp=4") == "gpipe pp=4"
        assert plan("gpipe dp2 pp4") == "dp2 pp4 mb1 zero0 gpipe bf16"

    def test_a_plan_file_has_its_own_batch(self, plan_file: Path) -> None:
        text = trainwright(*SMALL, str(plan_file)).stdout
        assert f"Global batch: 2 sequences of 1024 tokens, 2.05 ktokens (of {plan_file})" in text.replace(
            "\n", " "
        )
        assert "Plan two stages: 2 devices in 2 places, 2 microbatches" in text

    def test_a_saved_plan_is_the_same_plan(self, tmp_path: Path) -> None:
        path = tmp_path / "saved.plan"
        first = trainwright(*SMALL, "zb-h1 pp=4 mb=2", "--batch", "16", "--save-plan", str(path), "--json")
        again = trainwright(*SMALL, str(path), "--json")
        assert parse_plan(path.read_text(encoding="utf-8")).name == "zb-h1 pp=4 micro_batch=2"
        assert json.loads(again.stdout)["step_s"] == json.loads(first.stdout)["step_s"]
        assert list(tmp_path.iterdir()) == [path]

    def test_a_trace_has_an_event_of_every_task(self, tmp_path: Path, plan_file: Path) -> None:
        path = tmp_path / "trace.json"
        tree = json.loads(trainwright(*SMALL, str(plan_file), "--trace", str(path), "--json").stdout)
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
        assert sum(event["ph"] == "X" for event in events) == tree["tasks"]

    def test_the_schedule_is_as_wide_as_asked(self, plan_file: Path) -> None:
        text = trainwright(*SMALL, str(plan_file), "--width", "60").stdout
        rows = text.partition("Schedule")[2].splitlines()
        assert max(map(len, rows)) <= 60

    def test_a_device_without_bf16_trains_in_fp16(self) -> None:
        for plan in ("dp8 mb1", "fsdp"):
            text = trainwright("simulate", "gpt2", "v100:8", plan, "--batch", "16").stdout
            assert "fp16: 8 devices" in text


class TestBadInput:
    def test_a_plan_that_does_not_fit_is_shown_and_ends_with_code_2(self) -> None:
        result = trainwright("simulate", "llama3-70b", "h100:8", "dp2 pp4 mb1", "--batch", "8")
        message = failure(result, 2)
        assert 'plan "dp2 pp4 mb1 zero0 1f1b bf16": stage ' in message
        assert " GiB on device " in message
        assert "which has 79.1 GiB; split it further or shard its state" in message
        assert "It does not fit" in result.stdout
        assert "Memory when fullest" in result.stdout

    def test_a_mistake_in_a_file_is_told_with_its_line(self, plan_file: Path) -> None:
        plan_file.write_text("devices 2\n\nstge layer.0-5\n", encoding="utf-8")
        assert 'plan line 3 "stge": no such name; did you mean "stage"?' in fails(*SMALL, str(plan_file))
        plan_file.write_text("devices 2\nbatch many\n", encoding="utf-8")
        assert "plan line 2: batch" in fails(*SMALL, str(plan_file))
        plan_file.write_bytes(b"\xff\xfe")
        assert "is not text in UTF-8" in fails(*SMALL, str(plan_file))

    def test_an_unknown_name_or_parameter_suggests_the_nearest(self) -> None:
        assert 'did you mean "co-shard"?' in fails(*SMALL, "co-shad tp=2")
        assert 'did you mean "interlaced"?' in fails(*SMALL, "interlacd")
        assert 'did you mean "chunks"?' in fails(*SMALL, "co-shard chunk=2")
        assert 'word "tpp2": no such name; did you mean "tp1"?' in fails(*SMALL, "dp4 tpp2")

    @pytest.mark.parametrize("text", ["nowhere.plan", "/nowhere/at.all", "unheard", ""])
    def test_what_is_no_plan_at_all_is_told(self, text: str) -> None:
        message = fails(*SMALL, text)
        assert "is no file, no strategy and no plan of the zoo" in message or "is empty" in message

    def test_more_devices_than_there_are_is_told(self, plan_file: Path) -> None:
        assert "is for 16 devices, and the cluster has 8" in fails(*SMALL, "dp16")
        plan_file.write_text(PIPELINE.replace("devices 2", "devices 16"), encoding="utf-8")
        assert "plan devices 16: the cluster has 8" in fails(*SMALL, str(plan_file))

    def test_a_batch_that_does_not_divide_is_told(self, plan_file: Path) -> None:
        assert "batch 7: does not divide by dp·mb = 8" in fails(*SMALL, "dp8", "--batch", "7")
        assert "the plan has batch x microbatches = 2" in fails(*SMALL, str(plan_file), "--batch", "4")

    def test_more_microbatches_than_can_be_simulated_are_told(self) -> None:
        assert "too many to simulate" in fails(*SMALL, "dp1 pp8", "--batch", "99999999")

    def test_an_order_that_lacks_or_repeats_an_action_is_told(self, plan_file: Path) -> None:
        for actions, words in (
            ("F1.0 B1.0 F1.1", 'device 1: action "B1.1": is missing; add it'),
            ("F1.0 B1.0 F1.1 B1.1 B1.1", 'device 1: action "B1.1": is there twice'),
            ("F1.0 B1.0 F1.1 B1.1 F1.2", "is not among 2 stages, 2 microbatches and 1 passes"),
            ("F1.0 B1.0 I1.0 W1.0 F1.1 B1.1", 'action "B1.0": its backward is also split'),
        ):
            plan_file.write_text(PIPELINE.replace("F1.0 B1.0 F1.1 B1.1", actions), encoding="utf-8")
            assert words in fails(*SMALL, str(plan_file))

    def test_a_deadlock_is_told_as_its_cycle(self, plan_file: Path) -> None:
        swapped = PIPELINE.replace("F0.0 F0.1 B0.0 B0.1", "F0.0 B0.0 F0.1 B0.1")
        swapped = swapped.replace("F1.0 B1.0 F1.1 B1.1", "F1.1 B1.1 F1.0 B1.0")
        plan_file.write_text(swapped, encoding="utf-8")
        message = fails(*SMALL, str(plan_file))
        assert "deadlock at" in message
        assert "of microbatch 1 on device 1, that for" in message

    def test_a_precision_without_a_rate_is_told(self) -> None:
        message = fails("simulate", "gpt2", "a100:8", "dp8 fp8", "--batch", "16")
        assert 'precision "fp8": a100-80gb has no rate for it' in message

    def test_a_file_that_cannot_be_written_is_told(self, plan_file: Path) -> None:
        for option in ("--trace", "--save-plan"):
            assert "cannot be written" in fails(*SMALL, str(plan_file), option, "/nowhere/at/all")

    def test_a_width_is_a_number(self, plan_file: Path) -> None:
        assert '--width "wide"' in fails(*SMALL, str(plan_file), "--width", "wide")
