"""Where operator times come from, asked of every command that predicts."""

import argparse
import csv
import importlib
import json
from pathlib import Path

import pytest

from tests.commands import fails, trainwright
from trainwright.api.study import baseline_file
from trainwright.api.study_requests import CommunicationStudyRequest
from trainwright.cli.study import study_parser
from trainwright.cost.load import load_constants
from trainwright.cost.source import parse_cost
from trainwright.errors import BadInput, TrainwrightError, UnknownName
from trainwright.study.comp_vs_comm import SHIPPED
from trainwright.study.flexible_plans import Case, setting_of, source_of
from trainwright.study.scaling import Asked, Study, build_setting, run_study
from trainwright.validate.dataset import build_dataset
from trainwright.validate.sourced import source_groups

PREDICT = ("plan", "simulate", "validate", "run")
PROJECTED = f"projected:{SHIPPED}"
ROW = {
    "id": "one", "source": "here", "hardware": "MI210", "gpus": "4", "layers": "4", "hidden": "1024",
    "heads": "16", "seq_len": "512", "global_batch": "16", "precision": "fp16", "attention": "unfused",
}  # fmt: skip
SMALL = Asked(
    model="tinyllama-1.1b", devices=(8, 16), batches=(64,), models=("tinyllama-1.1b",), contexts=(4096,),
    generations=("a100",),
)  # fmt: skip


@pytest.mark.parametrize("command", PREDICT)
def test_every_command_that_predicts_takes_a_source(command: str) -> None:
    parser = argparse.ArgumentParser()
    importlib.import_module(f"trainwright.cli.{command}").add_arguments(parser)
    assert "--cost SOURCE" in parser.format_help()


@pytest.mark.parametrize("name", ["scaling", "flexible-plans", "comp-vs-comm"])
def test_every_study_that_predicts_takes_a_source(name: str) -> None:
    assert "--cost SOURCE" in study_parser(name).format_help()


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("measured", UnknownName, "no such name"),
        ("roofline:x.toml", BadInput, "roofline needs no file"),
        ("projected:", BadInput, "names no file after the colon"),
    ],
)
def test_what_is_no_source_is_told(text: str, error: type[TrainwrightError], words: str) -> None:
    with pytest.raises(error, match=words):
        parse_cost(text)


def scaled(cost: str | None) -> Study:
    return run_study(Asked(**{**{name: getattr(SMALL, name) for name in SMALL.__slots__}, "cost": cost}))


class TestScaling:
    def test_the_study_rests_on_what_is_asked_for(self) -> None:
        speeds = {}
        for cost in (None, "calibrated", "roofline", PROJECTED):
            curve = scaled(cost).curve("weak", "tinyllama-1.1b", "fsdp")
            assert curve is not None
            speeds[cost] = curve.points[0].tokens_per_s
        assert speeds[None] == speeds["calibrated"]
        assert speeds["roofline"] > speeds["calibrated"]
        assert speeds[PROJECTED] not in (speeds["roofline"], speeds["calibrated"])

    def test_the_notes_say_what_was_measured_and_how_far_it_is_carried(self) -> None:
        notes = " ".join(scaled(PROJECTED).notes)
        assert "measured on mi210" in notes
        assert "Expected error, projected: products" in notes
        assert "carried over to h100-sxm-80gb" in notes
        assert "carried over to a100-80gb" in notes
        assert scaled(None).notes == ()

    def test_a_profiled_machine_can_be_the_device(self) -> None:
        setting = build_setting(Asked(model="gpt2", device=str(SHIPPED), devices=(2, 4)))
        assert setting.source.efficiency.basis == "profiled"
        assert setting.source.stack.name == "trainwright"
        assert (setting.cluster(4).count, setting.cluster(4).device.name) == (4, "mi210")

    def test_the_command_prints_them(self) -> None:
        result = trainwright(
            "study", "scaling", "--model", "gpt2", "--devices", "8,16", "--models", "gpt2", "--contexts",
            "1024", "--generations", "h100", "--batch", "64", "--seq", "1024", "--cost", PROJECTED, "--json",
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        tree = json.loads(result.stdout)
        assert any("Expected error, projected" in note for note in tree["notes"])
        assert tree["tables"]["points"][0]["tokens_per_joule"] > 0


class TestFlexiblePlans:
    def test_a_case_rests_on_its_source(self) -> None:
        case = Case(family="swin", device="v100", count=4, cost=PROJECTED)
        assert setting_of(case).efficiency.basis == "projected"
        assert setting_of(case).stack.name == "megatron-lm"
        assert any("carried over to v100" in note for note in source_of(case).notes)

    def test_outcomes_of_one_source_are_not_read_for_another(self, tmp_path: Path) -> None:
        other = tmp_path / SHIPPED.name
        other.write_text(SHIPPED.read_text().replace('time = "549.3 us"', 'time = "550.3 us"'))
        costs = ("", "roofline", PROJECTED, f"profiled:{SHIPPED}", f"projected:{other}")
        names = {Case(family="swin", device="v100", count=4, cost=cost).name for cost in costs}
        assert len(names) == len(costs)
        assert "swin-1.8b-v100-4" in names
        assert not any("/" in name for name in names)


class TestValidate:
    def test_profiled_times_are_for_the_profiled_device_alone(self) -> None:
        rows = [ROW, ROW | {"hardware": "H100-SXM-80GB", "precision": "bf16"}]
        constants = load_constants()
        dataset = build_dataset(rows, constants.stack)
        found = source_groups(dataset, f"profiled:{SHIPPED}", constants)
        assert [group.indices for group in found.dataset.groups] == [(0,)]
        assert found.sources[0].efficiency.basis == "profiled"
        assert "was measured on mi210, not on this device" in found.dataset.reasons[1]

    def test_projected_times_are_carried_over_and_that_is_told(self) -> None:
        rows = [ROW, ROW | {"hardware": "H100-SXM-80GB", "precision": "bf16"}]
        constants = load_constants()
        found = source_groups(build_dataset(rows, constants.stack), PROJECTED, constants)
        assert len(found.dataset.groups) == 2
        assert any("carried over to h100" in note for note in found.notes)
        low = found.ranges.low
        assert low[1] < low[0] < 1  # the range is wider where times are carried over

    def test_without_a_row_on_the_profiled_device_there_is_an_error(self, tmp_path: Path) -> None:
        table = tmp_path / "runs.csv"
        table.write_text("\n".join([",".join(ROW), ",".join((ROW | {"hardware": "H100"}).values())]))
        said = fails("validate", str(table), "--cost", f"profiled:{SHIPPED}")
        assert (
            "was measured on mi210, and no run of the table was there; carry it over with projected:" in said
        )

    def test_rows_are_written_with_power(self, tmp_path: Path) -> None:
        table, out = tmp_path / "runs.csv", tmp_path / "out.csv"
        table.write_text("\n".join([",".join(ROW), ",".join(ROW.values())]))
        result = trainwright("validate", str(table), "--cost", PROJECTED, "--out", str(out), "--json")
        assert result.returncode == 0, result.stderr
        assert any("Expected error" in note for note in json.loads(result.stdout)["notes"])
        (row,) = csv.DictReader(out.open())
        assert 75 < float(row["predicted_device_w"]) <= 300  # between idle and peak of an MI210
        tokens_per_s = 16 * 512 / float(row["predicted_step_time_s"])
        # Hosts and cooling: fewer tokens for each joule at the meter than for one of the devices.
        assert float(row["predicted_tokens_per_joule"]) < tokens_per_s / (
            4 * float(row["predicted_device_w"])
        )


class TestCompVsComm:
    def test_projected_is_another_word_for_its_profile(self) -> None:
        assert baseline_file(CommunicationStudyRequest(cost="projected:x.toml")) == Path("x.toml")
        assert baseline_file(CommunicationStudyRequest(profile="x.toml")) == Path("x.toml")
        assert baseline_file(CommunicationStudyRequest(cost="projected")) is None

    @pytest.mark.parametrize("cost", ["roofline", "calibrated", "profiled:x.toml"])
    def test_it_cannot_do_without_a_measured_layer(self, cost: str) -> None:
        with pytest.raises(BadInput, match="projects from one measured layer"):
            baseline_file(CommunicationStudyRequest(cost=cost))

    def test_two_profiles_are_one_too_many(self) -> None:
        with pytest.raises(BadInput, match="leave one of them out"):
            baseline_file(CommunicationStudyRequest(cost="projected:x.toml", profile="y.toml"))
