"""The study of computation and communication: what it rests on, what its switches do, what it writes."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from tests.constant_profile import constant_baseline
from trainwright.cli.main import main
from trainwright.cost.source import load_profile
from trainwright.errors import BadInput
from trainwright.report import figures
from trainwright.study.algorithm_edge import MODELS, edge, forward_flops, memory_growth, required_tp
from trainwright.study.comp_vs_comm import SHIPPED, Study, run_study
from trainwright.study.comp_vs_comm_figures import study_figures
from trainwright.study.comp_vs_comm_tables import head_lines, study_tables
from trainwright.study.future_models import FASTER, Points, all_points, memory_points
from trainwright.study.layer_time import Sizes, build_baseline, layer_time
from trainwright.study.switches import Switches

PLAIN = Switches()


@pytest.fixture(scope="module")
def study() -> Study:
    return run_study(*load_profile(SHIPPED), PLAIN)


def switched(**switches: object) -> Points:
    """Every model of the shipped baseline, with switches."""
    return all_points(build_baseline(*load_profile(SHIPPED)), Switches(**switches))  # type: ignore[arg-type]


class TestArithmetic:
    def test_a_layer_has_the_flops_of_its_products(self) -> None:
        bert = MODELS[0]
        # 24·512·1024² + 4·512²·1024
        assert forward_flops(bert) == 24 * 512 * 1024**2 + 4 * 512**2 * 1024
        assert edge(bert) == 3 * (6 * 1024 + 512) / 2

    def test_the_required_tp_is_the_base_times_growth_of_model_over_growth_of_memory(self) -> None:
        assert required_tp(3.9e9, 1.0) == 8
        assert float(required_tp(530e9, 5.0)) == pytest.approx(217, abs=1)
        assert float(required_tp(540e9, 2.0)) == pytest.approx(554, abs=1)
        assert memory_growth(2022, 1.25) == 1.25**3
        assert memory_growth(2018, 1.25) == 1.0

    def test_the_published_models_are_compared_with_the_first(self, study: Study) -> None:
        first, *_, last = study.models
        assert (first["edge"], first["slack"], first["edge_at_required_tp"]) == (1, 1, 1)
        assert last["edge"] > 10 > 1 > last["edge_at_required_tp"]  # type: ignore[operator]


class TestShippedBaseline:
    def test_it_is_a_cluster_file_that_says_what_was_not_measured(self) -> None:
        profile, cluster = load_profile(SHIPPED)
        assert (cluster.device.name, cluster.count) == ("mi210", 4)
        assert "LLMCompass" in profile.source
        assert "derived, not measured" in profile.source
        assert any("attention" in each for each in profile.missing)
        assert {each.members for each in profile.collectives} == {16}

    def test_at_least_196_models_are_projected(self, study: Study) -> None:
        assert study.everywhere.count >= 196
        assert (study.everywhere.sizes.tp <= study.everywhere.sizes.hidden / 64).all()

    def test_profiling_avoided_is_above_a_thousand(self, study: Study) -> None:
        assert study.avoided.times > 1000

    def test_the_projection_is_checked_on_the_other_kernels(self, study: Study) -> None:
        assert study.check is not None
        assert study.check.kernels == 20
        assert study.check.median_error < 0.15

    def test_shares_of_future_models_lie_about_the_published_bands(self, study: Study) -> None:
        # What the shipped baseline gives; docs/studies/comp_vs_comm.md tells where it differs and why.
        pairs = study.spreads(study.by_shard, large=True)
        assert [each.inside for each in pairs.values()] == [24, 24, 23]
        assert pairs[4.0].most == pytest.approx(0.755, abs=0.01)
        required = study.spreads(study.by_memory[1.0], large=True)
        assert [each.inside for each in required.values()] == [16, 15, 12]

    def test_large_messages_come_near_a_check_with_four_constants(self) -> None:
        # 181 TF x 0.6 and 150 GB/s; at H 4096, SL 1024, TP 16 the measured curve is 3.6 times slower.
        hidden, seq, tp = (np.array(each) for each in ((12288.0, 65536.0), (2048.0, 4096.0), (32.0, 256.0)))
        sizes = Sizes(hidden=hidden, seq=seq, batch=np.ones(2), tp=tp)
        time = layer_time(build_baseline(*load_profile(SHIPPED)), sizes, PLAIN)
        for faster, expected in zip(FASTER, ((0.28, 0.38), (0.44, 0.55), (0.61, 0.71)), strict=True):
            assert time.serialized_share(faster) == pytest.approx(expected, abs=0.09)


class TestSwitches:
    def test_experts_add_all_to_alls(self) -> None:
        baseline = constant_baseline()
        dense, routed, twice = (
            all_points(baseline, each).time.serialized_share()
            for each in (PLAIN, Switches(experts=64, top_k=1), Switches(experts=64, top_k=2))
        )
        assert (routed > dense).all()
        assert (twice > dense).all()  # less than routed: the FFN works twice, too
        assert (switched(experts=64).time.serialized_share() > switched().time.serialized_share()).all()

    def test_an_all_to_all_has_the_bytes_of_its_formula(self) -> None:
        plain, routed = (
            all_points(constant_baseline(), each) for each in (PLAIN, Switches(experts=64, top_k=2))
        )
        sizes = plain.sizes
        # four of 2 bytes · tokens · H · top-2, of which 63/64 leave at 100 GB/s
        expected = 4 * 2 * sizes.seq * sizes.batch * sizes.hidden * 2 * (63 / 64) / 100e9
        assert routed.time.serialized_s - plain.time.serialized_s == pytest.approx(expected, rel=1e-6)

    def test_sequence_parallelism_splits_norms_and_sends_as_much(self) -> None:
        plain, split = switched(), switched(sequence_parallel=True)
        assert split.time.serialized_s == pytest.approx(plain.time.serialized_s)
        assert (split.time.compute_s < plain.time.compute_s).all()
        assert (split.time.serialized_share() > plain.time.serialized_share()).all()

    def test_a_pipeline_lowers_the_tp_that_memory_requires(self) -> None:
        baseline = build_baseline(*load_profile(SHIPPED))
        plain, staged = (memory_points(baseline, each) for each in (PLAIN, Switches(stages=8)))
        assert (staged.sizes.tp <= plain.sizes.tp).all()
        assert (staged.time.serialized_share() < plain.time.serialized_share()).all()
        assert (switched(stages=8).time.serialized_s > switched().time.serialized_s).all()
        assert Switches(stages=8).idle_share == 7 / 32
        assert Switches(stages=8, microbatches=14).idle_share == 0.5

    def test_fsdp_sends_half_as_much_again(self) -> None:
        assert switched(fsdp=True).time.overlapped_share() == pytest.approx(
            1.5 * switched().time.overlapped_share()
        )

    def test_inference_has_half_the_communication_and_a_third_of_the_products(self) -> None:
        plain, forward = switched(), switched(inference=True)
        assert forward.time.serialized_s == pytest.approx(plain.time.serialized_s / 2)
        assert (forward.time.serialized_share() > plain.time.serialized_share()).all()
        assert (forward.time.exposed_s() == 0).all()

    def test_switches_that_sum_send_once(self) -> None:
        plain, summed = (
            all_points(constant_baseline(), each) for each in (PLAIN, Switches(in_network_reduction=True))
        )
        n = plain.sizes.tp
        assert plain.time.serialized_s / summed.time.serialized_s == pytest.approx(2 * (n - 1) / n)
        shipped = switched(in_network_reduction=True)
        assert (shipped.time.serialized_share() <= switched().time.serialized_share()).all()
        assert (shipped.time.overlapped_share() <= switched().time.overlapped_share()).all()

    def test_interference_costs_and_offloading_saves_it(self) -> None:
        plain, felt = switched(), switched(interference=0.5)
        beside_s = np.minimum(plain.time.overlapped_s, plain.time.hiding_s)
        assert felt.time.exposed_s() - plain.time.exposed_s() == pytest.approx(0.5 * beside_s)
        assert (felt.time.communication_share() > plain.time.communication_share()).all()
        offloaded = switched(interference=0.5, offload=True)
        assert offloaded.time.exposed_s() == pytest.approx(plain.time.exposed_s())

    def test_more_memory_lowers_the_required_tp(self, study: Study) -> None:
        assert (study.by_memory[4.0].needed_tp <= study.by_memory[1.0].needed_tp).all()
        assert (study.by_memory[4.0].sizes.tp < study.by_memory[1.0].sizes.tp).any()

    def test_each_switch_is_told(self, study: Study) -> None:
        every = Switches(
            experts=8, sequence_parallel=True, stages=2, fsdp=True, in_network_reduction=True, offload=True,
            interference=0.1,
        )  # fmt: skip
        said = " ".join(every.told())
        for name in ("--moe", "--sequence-parallel", "--pipeline", "--fsdp", "--in-network-reduction",
                     "--interference", "--offload-communication"):  # fmt: skip
            assert name in said
        assert not any(line.startswith("--") for line in head_lines(study))
        assert "there is none to remove" in Switches(offload=True).told()[0]


class TestClaims:
    def test_each_figure_has_a_claim_that_its_numbers_judge(self, study: Study) -> None:
        found = {each.name: each.holds for each in study_figures(study)}
        assert found == {
            "edge_and_slack": True, "required_tp": True, "share_over_tp": True, "memory_capacity": True,
            "overlapped": True, "shares_published_pairs": False, "shares_required_tp": False,
        }  # fmt: skip

    def test_a_claim_can_fall(self) -> None:
        # One replica has nothing to exchange, so nothing can be exposed.
        profile, cluster = load_profile(SHIPPED)
        slow = run_study(profile, cluster, Switches(replicas=1))
        (exposed,) = (each for each in study_figures(slow) if each.name == "overlapped")
        assert not exposed.holds

    def test_tables_have_a_row_a_model(self, study: Study) -> None:
        tables = study_tables(study)
        assert len(tables["points"]) == study.everywhere.count
        assert len(tables["required_tp"]) == 3 * 56
        assert {row["flop_vs_bw"] for row in tables["bands"]} == {1.0, 2.0, 4.0}


class TestCommand:
    def test_it_tells_what_it_found(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["study", "comp-vs-comm", "--moe", "64:2"]) == 0
        said = capsys.readouterr().out
        for words in ("Edge and slack", "H/256", "Profiling avoided", "--moe: 64 experts", "[holds]"):
            assert words in said
        assert max(map(len, said.splitlines())) <= 100

    def test_json_is_one_tree(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["study", "comp-vs-comm", "--json", "--inference"]) == 0
        tree = json.loads(capsys.readouterr().out)
        assert tree["switches"]["inference"] is True
        assert tree["avoided_times"] > 1000

    def test_without_libraries_for_figures_it_writes_tables_and_says_how_to_get_them(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(figures, "can_draw", lambda: False)
        assert main(["study", "comp-vs-comm", "--out", str(tmp_path / "new")]) == 0
        assert "pip install 'trainwright[figures]'" in capsys.readouterr().out
        names = {each.name for each in (tmp_path / "new").iterdir()}
        assert names == {
            "models.csv", "points.csv", "required_tp.csv", "published_pairs.csv", "bands.csv", "study.json",
            "index.html",
        }  # fmt: skip
        with (tmp_path / "new" / "points.csv").open(encoding="utf-8") as lines:
            assert len(list(csv.DictReader(lines))) == 312
        assert "It does not hold." in (tmp_path / "new" / "index.html").read_text(encoding="utf-8")

    def test_a_profile_of_ones_own_is_used(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        text = SHIPPED.read_text(encoding="utf-8")
        own = tmp_path / "own.toml"
        own.write_text(text.replace('software = "', 'interference = 0.25\nsoftware = "'), encoding="utf-8")
        assert main(["study", "comp-vs-comm", "--profile", str(own)]) == 0
        assert "costs 0.25 s more" in " ".join(capsys.readouterr().out.split())

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["--profile", "nowhere.toml"], "does not exist"),
            (["--moe", "2:4"], "more experts than there are"),
            (["--moe", "many"], "is not a whole number above zero"),
            (["--pipeline", "0"], "is not a whole number above zero"),
            (["--interference", "nan"], "is not a number from 0 to 100"),
            (["--replicas", "-1"], "is not a whole number above zero"),
            (["--fsdp", "--inference"], "--inference has none"),
            (["--out", "/dev/null/x"], "cannot be made"),
        ],
    )
    def test_bad_input_is_told(
        self, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["study", "comp-vs-comm", *arguments]) == 1
        captured = capsys.readouterr()
        assert said in captured.err
        assert captured.err.count("\n") == 1

    def test_an_option_of_another_study_is_not_known(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["study", "comp-vs-comm", "--sensitivity"]) == 1
        assert 'option "--sensitivity"' in capsys.readouterr().err

    @pytest.mark.parametrize("name", ["comp-vs-comm", "flexible-plans"])
    def test_each_study_has_its_own_help(self, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit, match="0"):
            main(["study", name, "--help"])
        assert f"usage: trainwright study {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ('kind = "all_reduce"', 'kind = "broadcast"', "has no all_reduce"),
        ("region = true", "region = false", "has no product of a baseline layer"),
        ('dtype = "fp16"', 'dtype = "fp17"', "no such name"),
    ],
)
def test_a_profile_that_is_not_enough_is_refused(tmp_path: Path, old: str, new: str, rule: str) -> None:
    path = tmp_path / "p.toml"
    path.write_text(SHIPPED.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    with pytest.raises(BadInput, match=rule):
        run_study(*load_profile(path), PLAIN)
