"""The study of scaling: arithmetic of returns, what is compared at each scale, what the command writes."""

import csv
import io
import json
from pathlib import Path

import pytest

from trainwright.cli.main import main
from trainwright.errors import BadInput
from trainwright.report import figures
from trainwright.study.scaling import Asked, Study, build_setting, run_study
from trainwright.study.scaling_figures import study_figures
from trainwright.study.scaling_points import ANY, FSDP, HSDP, PIPELINE, TENSOR, Batch, Point, best_points
from trainwright.study.scaling_returns import Curve, crossing, knee, marginals
from trainwright.study.scaling_tables import study_tables, tail_lines

SMALL = Asked(
    model="tinyllama-1.1b", devices=(8, 16, 32), seq=2048, models=("tinyllama-1.1b",), contexts=(1024, 2048),
    generations=("a100", "h100"), batches=(32,),
)  # fmt: skip
WORDS = [
    "study", "scaling", "--model", "tinyllama-1.1b", "--devices", "8:32", "--seq", "2048", "--batch", "32",
    "--models", "tinyllama-1.1b", "--contexts", "1024,2048", "--generations", "a100,h100",
]  # fmt: skip


@pytest.fixture(scope="module")
def study() -> Study:
    return run_study(SMALL)


def point(devices: int, tokens_per_s: float, degree: int = 1) -> Point:
    """1 kW and 2 $/h a device at the meter; a step of 1 s, half of it communication, a quarter exposed."""
    return Point(
        devices=devices, strategy="dp", degree=degree, global_batch=devices, seq=1, step_s=1.0,
        tokens_per_s=tokens_per_s, tokens_per_s_per_device=tokens_per_s / devices, mfu=0.4, device_w=500.0,
        power_w=1000.0 * devices, dollars_per_hour=2.0 * devices, communication_s=0.5, exposed_s=0.25,
    )  # fmt: skip


def curve_of(*pairs: tuple[int, float], plan: str = "fsdp") -> Curve:
    return Curve(study="weak", case="x", plan=plan, points=tuple(point(*each) for each in pairs))


class TestReturns:
    def test_a_step_adds_tokens_for_each_device_watt_and_dollar(self) -> None:
        first, second = marginals(curve_of((8, 800.0), (16, 1600.0), (32, 2400.0)))
        assert (first.devices, first.more, first.tokens_per_s_per_device, first.share) == (8, 16, 100.0, 1.0)
        # 800 tokens/s for 16 devices, 16 kW, 32 $/h: 50 of 100, 0.05 tokens/J, 90,000 tokens/$.
        assert (second.tokens_per_s_per_device, second.share) == (50.0, 0.5)
        assert second.tokens_per_joule == 0.05
        assert second.tokens_per_dollar == 800 * 3600 / 32

    def test_the_knee_is_where_less_than_half_is_added(self) -> None:
        assert knee(curve_of((8, 800.0), (16, 1600.0), (32, 2400.0))) is None
        assert knee(curve_of((8, 800.0), (16, 1600.0), (32, 2390.0))) == 16

    def test_a_plan_overtakes_where_it_stays_ahead(self) -> None:
        fsdp = curve_of((8, 100.0), (16, 100.0), (32, 100.0), (64, 100.0))
        found = crossing(curve_of((8, 101.0), (16, 90.0), (32, 110.0), (64, 120.0), plan="tp2"), fsdp)
        # From -10 to +10 %: half way from 16 to 32 in the logarithm.
        assert (found.plan, found.first) == ("tp2", 32)
        assert found.about == pytest.approx(16 * 2**0.5)
        assert found.gain == pytest.approx(0.2)
        assert crossing(curve_of((8, 101.0), (64, 90.0)), fsdp).first is None
        assert crossing(curve_of((8, 101.0), (16, 110.0)), fsdp).about == 8

    def test_a_point_knows_its_shares(self) -> None:
        each = point(8, 800.0)
        assert (each.tokens_per_joule, each.tokens_per_dollar) == (0.2, 800 * 3600 / 16)
        assert (each.communication_share, each.exposed_share) == (0.5, 0.25)


class TestPoints:
    def test_each_kind_has_its_degrees_and_shards(self) -> None:
        kinds = (FSDP, HSDP, TENSOR[0], PIPELINE[1])
        (found,) = best_points(build_setting(SMALL), 16, [Batch(size=32, kinds=kinds)])
        fsdp, hsdp, tensor, pipeline = (each.strategy if each else "" for each in found)
        assert fsdp == "dp16 mb2 zero3 bf16"
        assert hsdp.startswith("dp16 mb2 zero3 hsdp8")
        assert tensor.startswith("dp8 tp2")
        assert pipeline.startswith("dp4 pp4")
        assert "1f1b" in pipeline

    def test_one_device_group_needs_no_shards(self) -> None:
        (found,) = best_points(build_setting(SMALL), 8, [Batch(size=16, kinds=(TENSOR[1], HSDP))])
        assert found[0] is not None
        assert found[1] is None  # a group of the whole is no group

    def test_what_is_not_legal_or_does_not_fit_is_none(self) -> None:
        setting = build_setting(SMALL)
        assert best_points(setting, 8, [Batch(size=3, kinds=(FSDP,))]) == [[None]]
        large = build_setting(Asked(model="llama3-405b"))
        assert best_points(large, 8, [Batch(size=16, kinds=(FSDP, ANY))]) == [[None, None]]

    def test_batches_asked_for_together_are_as_if_alone(self) -> None:
        setting = build_setting(SMALL)
        batches = [Batch(size=32, kinds=(FSDP, ANY)), Batch(size=64, kinds=(ANY,))]
        assert best_points(setting, 16, batches) == [best_points(setting, 16, [each])[0] for each in batches]

    def test_a_device_may_name_its_network(self) -> None:
        setting = build_setting(Asked(device="h100@aws-p5"))
        assert setting.cluster(16).network.name == "aws-p5"


class TestStudy:
    def test_every_study_has_its_curves(self, study: Study) -> None:
        assert {each.study for each in study.curves} == {
            "weak", "degree", "strong", "size", "context", "generation"
        }  # fmt: skip
        assert {each.case for each in study.cases("generation", FSDP.name)} == {"a100", "h100"}
        assert all(each.devices <= 32 for curve in study.curves for each in curve.points)

    def test_a_batch_that_is_both_fixed_and_growing_is_searched_for_each(self, study: Study) -> None:
        strong, weak = study.curve("strong", "batch 32", ANY.name), study.curve("weak", SMALL.model, "fsdp")
        assert strong is not None
        assert weak is not None
        there, here = strong.at(16), weak.at(16)  # 2 sequences on each of 16 devices
        assert there is not None
        assert here is not None
        assert there.tokens_per_s >= here.tokens_per_s

    def test_the_subject_is_the_same_in_every_study(self, study: Study) -> None:
        weak = study.curve("weak", SMALL.model, FSDP.name)
        assert weak is not None
        for which, case in (("size", SMALL.model), ("context", "2048 tokens"), ("generation", "h100")):
            again = study.curve(which, case, FSDP.name)
            assert again is not None
            assert again.points == weak.points

    def test_figures_are_of_all_parts_that_have_something_to_compare(self, study: Study) -> None:
        names = [each.name for each in study_figures(study)]
        assert names == [
            "weak_scaling", "power", "communication", "marginal", "degree", "strong_scaling", "context",
            "generation",
        ]  # fmt: skip
        assert set(study_tables(study)) == {"points", "marginal", "turns"}
        assert any(line.startswith("Knee of fsdp") for line in tail_lines(study))

    def test_scales_must_grow(self) -> None:
        with pytest.raises(BadInput, match="two or more growing numbers"):
            Asked(devices=(16, 8))

    def test_what_fits_nowhere_is_an_error(self) -> None:
        with pytest.raises(BadInput, match="nothing fits at any scale"):
            run_study(
                Asked(
                    model="llama3-405b", devices=(8, 16), models=(), contexts=(), generations=(), batches=()
                )
            )


class TestCommand:
    def test_it_tells_claims_with_verdicts(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(WORDS) == 0
        text = capsys.readouterr().out
        for part in ("Weak scaling, FSDP", "What an added device", "Strong scaling", "Knee of fsdp"):
            assert part in text
        assert "[holds]" in text

    def test_json_and_csv_go_where_they_are_sent(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main([*WORDS, "--json", "--csv", str(tmp_path / "points.csv")]) == 0
        tree = json.loads(capsys.readouterr().out)
        assert tree["asked"]["devices"] == [8, 16, 32]
        assert set(tree["best_degree"]) == {"8", "16", "32"}
        rows = list(csv.DictReader(io.StringIO((tmp_path / "points.csv").read_text())))
        assert len(rows) == len(tree["tables"]["points"])
        assert float(rows[0]["tokens_per_joule"]) > 0

    def test_out_has_tables_and_figures(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(figures, "can_draw", lambda: False)  # drawing is tested with the figures
        assert main([*WORDS, "--out", str(tmp_path / "out")]) == 0
        names = {each.name for each in (tmp_path / "out").iterdir()}
        assert names == {"points.csv", "marginal.csv", "turns.csv", "study.json", "index.html"}

    @pytest.mark.parametrize(
        ("words", "told"),
        [
            (["--devices", "8"], "two or more growing"),
            (["--devices", "8:x"], "whole number"),
            (["--model", "lama2-7b"], "llama2-7b"),
            (["--generations", "h10"], "device"),
            (["--stack", "nothing"], "stack"),
            (["--json", "--csv"], "has the JSON already"),
        ],
    )
    def test_bad_input_is_one_line(
        self, words: list[str], told: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        stated = WORDS.index(words[0]) if words[0] in WORDS else len(WORDS)
        assert main([*WORDS[:stated], *words, *WORDS[stated + 2 :]]) == 1
        error = capsys.readouterr().err
        assert told in error
        assert "Traceback" not in error
