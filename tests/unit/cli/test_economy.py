"""What a run costs, loses and aims at, as users ask for it."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.commands import fails, trainwright
from trainwright.api.limits import Limits, device_counts

SMALL = ("plan", "gpt2", "h100:8", "--batch", "64", "--top", "1")
RANGE = ("plan", "gpt2", "h100:64", "--batch", "512", "--tokens", "1T", "--top", "1")


def best(*options: str) -> dict[str, Any]:
    result = trainwright(*SMALL, "--json", *options)
    assert result.returncode == 0, result.stderr
    plan: dict[str, Any] = json.loads(result.stdout)["plans"][0]
    return plan


class TestMoney:
    def test_owned_devices_cost_capital_and_electricity(self) -> None:
        plan = best(
            "--own", "--capital", "30k$", "--network-share", "0.25", "--amortize", "4 years",
            "--electricity", "0.1 $/kWh",
        )  # fmt: skip
        budget = plan["budget"]
        # 40,000 $ with the network, over 35,064 hours
        capital = 40_000 / 35_064 * budget["device_hours"]
        assert budget["dollars"] == pytest.approx(capital + 0.1 * budget["kwh"])
        assert budget["device_hours"] == pytest.approx(8 * 24 * budget["days"])

    def test_the_usual_capital_is_told(self) -> None:
        text = trainwright(*SMALL, "--own").stdout
        # 12,500 hours of 2.99 $; with 19 % for the network, over 4 years of 8,766 h
        assert "Owned: 37,375 $ a device" in text
        assert "1.32 $ per device-hour" in text

    def test_carbon_follows_the_grid(self) -> None:
        budget = best("--grid", "100 g/kWh")["budget"]
        assert budget["co2e_kg"] == pytest.approx(0.1 * budget["kwh"])

    def test_cost_ranks_with_electricity(self) -> None:
        plan = best("--own", "--objective", "cost")
        assert plan["budget"]["dollars"] > 0

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (("--capital", "30k$"), "is for owned devices; add --own"),
            (("--electricity", "0.1 $/kWh"), "is for owned devices; add --own"),
            (("--own", "--price", "2 $/h"), "is of rented devices"),
            (("--own", "--capital", "30000"), 'has no unit; write it like "37500 $"'),
            (("--own", "--network-share", "1.5"), "is not below 1"),
            (("--own", "--network-share", "much"), "is not a number"),
            (("--own", "--amortize", "0 years"), "is zero"),
            (("--grid", "400"), 'has no unit; write it like "400 g/kWh"'),
            (("--grid", "-1 g/kWh"), "is negative"),
        ],
    )
    def test_bad_input_is_one_line(self, options: tuple[str, ...], words: str) -> None:
        assert words in fails(*SMALL, *options)


class TestInterruptions:
    def test_they_lengthen_the_run(self) -> None:
        plan = best()
        assert plan["budget"]["days"] > plan["budget"]["steady_days"]
        speed = plan["goodput"]["share"] / (1 + plan["goodput"]["straggling"])
        assert plan["effective_tokens_per_s"] == pytest.approx(speed * plan["tokens_per_s"])

    def test_a_run_without_them_is_steady(self) -> None:
        plan = best("--failures", "0 /device-day", "--planned", "0 /day", "--jitter", "0")
        assert plan["goodput"]["share"] == 1
        assert plan["goodput"]["interval_s"] is None
        assert plan["budget"]["days"] == plan["budget"]["steady_days"]

    def test_everything_can_be_stated(self) -> None:
        told = best(
            "--failures", "0.125 /device-day", "--detection", "1 min", "--restart", "2 min",
            "--checkpoint-bandwidth", "100 GB/s", "--storage-bandwidth", "2 GB/s",
            "--checkpoint-size", "20 GB", "--checkpoint-interval", "10 min",
            "--planned", "1 /week", "--planned-time", "1 h", "--jitter", "0.01",
        )["goodput"]  # fmt: skip
        # 8 devices fail once a day; 20 GB at 2 GB/s; an hour a week is 1/168; one node waits for no other
        assert told["failures_per_day"] == pytest.approx(1.0)
        assert told["checkpoint_s"] == pytest.approx(10.0)
        assert told["interval_s"] == pytest.approx(600.0)
        assert told["planned_share"] == pytest.approx(1 / 168)
        assert told["straggling"] == pytest.approx(0.0, abs=1e-9)
        # 180 s for each failure and half of 610 s again, once in 86,400 s
        assert told["restart_share"] == pytest.approx(180 / 86400, rel=0.02)
        assert told["redone_share"] == pytest.approx(305 / 86400, rel=0.02)

    def test_a_checkpoint_holds_weights_and_optimizer(self) -> None:
        # gpt2 has 124.4 M parameters, at 2 + 12 bytes
        assert best()["goodput"]["checkpoint_bytes"] == pytest.approx(124.4e6 * 14, rel=0.001)

    def test_llama_3_405b_on_16384_h100_has_the_published_goodput(self) -> None:
        result = trainwright("plan", "llama3-405b", "h100:16384", "--tokens", "15.6T", "--top", "1")
        share = re.search(r"Goodput ([0-9.]+)%", result.stdout)
        assert share is not None
        assert 90 < float(share[1]) < 97

    def test_a_run_that_never_ends_is_told(self) -> None:
        result = trainwright(*SMALL, "--failures", "1e9 /device-day")
        assert result.returncode == 0, result.stderr
        assert "never finished" in result.stdout

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (("--failures", "1e-3"), 'has no unit; write it like "4.7e-4 /device-day"'),
            (("--restart", "soon"), "not a quantity in s"),
            (("--checkpoint-bandwidth", "0 GB/s"), "is zero"),
            (("--checkpoint-interval", "0 s"), "is zero"),
            (("--jitter", "2"), "is not below 1"),
        ],
    )
    def test_bad_input_is_one_line(self, options: tuple[str, ...], words: str) -> None:
        assert words in fails(*SMALL, *options)


class TestTarget:
    def test_a_loss_takes_tokens_by_the_law_and_more_for_the_batch(self) -> None:
        # 124.4 M parameters: 406.4 / N^0.34 = 0.718; 3.2 - 1.69 - 0.718 = 0.792; (410.7 / 0.792)^(1 / 0.28)
        budget = best("--target-loss", "3.2")["budget"]
        assert budget["least_tokens"] == pytest.approx((410.7 / 0.792) ** (1 / 0.28), rel=0.02)
        # B_crit = 2e8 / 3.2^4.762 = 786 k; the batch is 65,536
        assert budget["tokens"] / budget["least_tokens"] == pytest.approx(1 + 65536 / 786e3, rel=0.01)

    def test_a_stated_critical_batch_charges_a_budget(self) -> None:
        budget = best("--tokens", "10B", "--critical-batch", "65536")["budget"]
        assert budget["tokens"] == pytest.approx(20e9)
        assert best("--tokens", "10B")["budget"]["tokens"] == 10e9
        assert best("--target-loss", "3.2", "--critical-batch", "none")["budget"]["tokens"] == pytest.approx(
            best("--target-loss", "3.2")["budget"]["least_tokens"]
        )

    def test_both_counts_are_told(self) -> None:
        text = trainwright(*SMALL, "--target-loss", "3.2").stdout
        assert "Target loss 3.2: " in text
        assert "at a small batch" in text
        assert "Critical batch 786 ktokens (Kaplan et al. 2020)" in text

    def test_a_small_critical_batch_prefers_small_batches(self) -> None:
        def chosen(*options: str) -> int:
            command = ("plan", "gpt2", "h100:8", "--batch-range", "8:512", "--json", "--top", "1", *options)
            return int(json.loads(trainwright(*command).stdout)["plans"][0]["global_batch"])

        assert chosen("--critical-batch", "1000") < chosen()

    def test_the_refit_is_an_option(self) -> None:
        text = trainwright(*SMALL, "--target-loss", "3.2", "--scaling-law", "besiroglu").stdout
        assert "Besiroglu et al. 2024" in text

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (("--target-loss", "2.0"), "gpt2 stays above 2.4"),
            (("--target-loss", "-1"), "is not above zero"),
            (("--target-loss", "low"), "is not a number"),
            (("--target-loss", "3", "--tokens", "1B"), "not allowed with argument"),
            (("--target-loss", "3", "--scaling-law", "kaplam"), "scaling law"),
            (("--critical-batch", "0"), "is zero"),
        ],
    )
    def test_bad_input_is_one_line(self, options: tuple[str, ...], words: str) -> None:
        assert words in fails(*SMALL, *options)


class TestSmallestCluster:
    def test_counts_double_from_a_device_to_a_node_and_on(self) -> None:
        free = Limits(max_days=1.0, max_dollars=1.0, least=1, most=100)
        assert device_counts(free, 8) == (1, 2, 4, 8, 16, 32, 64, 100)
        narrow = Limits(max_days=1.0, max_dollars=1.0, least=24, most=64)
        assert device_counts(narrow, 8) == (24, 32, 64)
        assert device_counts(Limits(max_days=1.0, max_dollars=1.0, least=8, most=8), 8) == (8,)
        # nodes of 72
        assert device_counts(Limits(max_days=1.0, max_dollars=1.0, least=32, most=288), 72) == (
            32, 64, 72, 144, 288,
        )  # fmt: skip

    def test_the_smallest_in_time_is_found_with_the_curve(self, tmp_path: Path) -> None:
        table = tmp_path / "curve.csv"
        one = float(json.loads(trainwright(*RANGE, "--json").stdout)["plans"][0]["budget"]["days"])
        tree = json.loads(
            trainwright(*RANGE, "--max-days", str(2.5 * one), "--json", "--csv", str(table)).stdout
        )
        assert 16 <= tree["smallest"] <= 32
        assert tree["cluster"]["count"] == tree["smallest"]
        meets = {row["devices"]: row["meets"] for row in tree["curve"]}
        assert meets[64] is True
        assert all(is_met == (count >= tree["smallest"]) for count, is_met in meets.items())
        days = [row["days"] for row in tree["curve"]]
        assert days == sorted(days, reverse=True)
        assert len(list(csv.DictReader(table.open(encoding="utf-8")))) == len(meets)

    def test_a_budget_bounds_it_from_above(self) -> None:
        curve = json.loads(trainwright(*RANGE, "--max-dollars", "1e9", "--json").stdout)
        assert (curve["smallest"], curve["fastest"], curve["cluster"]["count"]) == (1, 64, 64)
        middle = sorted(row["dollars"] for row in curve["curve"])[len(curve["curve"]) // 2]
        text = trainwright(*RANGE, "--max-dollars", str(middle), "--devices-range", "4..64").stdout
        assert "Smallest within" in text
        assert "Fastest within them" in text
        assert max(map(len, text.splitlines())) <= 100

    def test_nothing_in_time_is_exit_code_2_with_the_nearest_miss(self) -> None:
        message = fails(*RANGE, "--max-days", "0.001", code=2)
        assert "the nearest miss, 64 devices, needs" in message
        assert "take more devices" in message

    def test_nothing_that_fits_is_exit_code_2(self) -> None:
        message = fails("plan", "llama3-405b", "h100:2", "--batch", "1", "--max-days", "1e9", code=2)
        assert "does not fit on 2" in message

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (("--max-days", "soon"), "is not a number"),
            (("--max-days", "0"), "is not above zero"),
            (("--max-dollars", "-5"), "is not above zero"),
            (("--max-days", "3 days"), "is not a number"),
            (("--devices-range", "8..16"), "add --max-days or --max-dollars"),
            (("--max-days", "9", "--devices-range", "8"), "has no end"),
            (("--max-days", "9", "--devices-range", "32..8"), "starts above its end"),
            (("--max-days", "9", "--devices-range", "8..128"), "is more than 64"),
            (("--max-days", "9", "--flexible"), "is for one cluster"),
            (("--max-days", "9", "--fix", "tp=7"), "does not divide"),
        ],
    )
    def test_bad_input_is_one_line(self, options: tuple[str, ...], words: str) -> None:
        assert words in fails(*RANGE, *options)
