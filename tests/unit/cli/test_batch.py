"""The global batch as users ask for it: exact, in tokens, a range, or the same for every count of devices."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.commands import fails, trainwright

PLAN = ("plan", "gpt2", "h100:8", "--top", "1")
PRIME = ("plan", "llama2-7b", "a100:128", "--seq", "4096", "--top", "1")


def answer(*words: str) -> dict[str, Any]:
    result = trainwright(*words, "--json")
    assert result.returncode == 0, result.stderr
    tree: dict[str, Any] = json.loads(result.stdout)
    return tree


class TestTarget:
    def test_the_batch_that_was_chosen_is_stated(self) -> None:
        text = " ".join(trainwright(*PRIME, "--batch-tokens", "4M").stdout.split())
        assert "Global batch: 1024 sequences of 4096 tokens, 4.19 Mtokens (asked for 4M" in text
        assert "4M = 4,194,304 tokens ± 3 %)" in text
        text = " ".join(trainwright(*PRIME, "--batch-tokens", "4e6").stdout.split())
        assert "Global batch: 960 sequences of 4096 tokens, 3.93 Mtokens (asked for 4e6 tokens ± 3 %)" in text

    def test_json_has_what_was_asked_for(self) -> None:
        tree = answer(*PLAN, "--batch-tokens", "500k")
        assert tree["batch"] == {
            "sequences": [480], "asked_tokens": 500_000.0, "asked_sequences": [474, 502], "better": None,
        }  # fmt: skip
        assert tree["plans"][0]["global_batch"] == 480

    def test_a_tolerance_widens_or_narrows_the_range(self) -> None:
        # 500,000 / 1,024 = 488.28
        assert answer(*PLAN, "--batch-tokens", "500k", "--batch-tolerance", "0%")["batch"]["sequences"] == [
            488
        ]
        wide = answer(*PLAN, "--batch-tokens", "500k", "--batch-tolerance", "10%")["batch"]
        assert wide["asked_sequences"] == [440, 537]
        assert wide["sequences"] == [512]

    def test_islands_divide_the_batch(self) -> None:
        words = ("plan", "gpt2-xl", "h100:8x3@10Gbps", "--batch-tokens", "500k", "--algorithm", "local-sgd")
        tree = answer(*words, "--islands", "3")
        assert tree["batch"]["sequences"][0] % 3 == 0
        assert not tree["refused"]

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (("--batch", "64", "--batch-tolerance", "3%"), "goes with a batch in tokens or a range"),
            (("--batch-tolerance", "3%"), "goes with a batch in tokens or a range"),
            (("--batch-tokens", "1M", "--batch-tolerance", "3"), '"3": has no unit; write it like "3%"'),
            (("--batch-tokens", "1M", "--batch-tolerance", "90%"), "is more than 50%"),
            (("--batch-tokens", "9"), "is less than a sequence of 1024"),
            (("--batch-tokens", "1M", "--batch", "8"), "not allowed with argument"),
            (("--batch-tokens", "1M", "--fix", "dp=8", "--fix", "mb=999"), "is legal on 8 devices"),
        ],
    )
    def test_bad_input_is_one_line(self, options: tuple[str, ...], words: str) -> None:
        assert words in fails(*PLAN, *options)


class TestExact:
    def test_a_stated_batch_is_never_altered_and_named_if_it_limits(self) -> None:
        tree = answer(*PRIME, "--batch", "977")
        assert tree["plans"][0]["global_batch"] == 977
        assert tree["limits"][0].startswith("Global batch: 977 sequences divide badly over 128 devices")
        assert tree["batch"]["better"]["sequences"] == 1024
        assert tree["batch"]["better"]["faster"] > 1.5

    def test_a_batch_that_divides_is_not_named(self) -> None:
        tree = answer(*PRIME, "--batch", "1024")
        assert tree["batch"]["better"] is None
        assert not any("Global batch" in line for line in tree["limits"])


class TestRange:
    def test_batches_are_compared_by_time_to_the_same_loss(self) -> None:
        words = (*PLAN, "--batch-range", "8:4096")
        by_loss, by_rate = answer(*words), answer(*words, "--critical-batch", "none")
        assert by_loss["plans"][0]["global_batch"] < by_rate["plans"][0]["global_batch"]
        assert "compared by time to the same loss" in by_loss["notes"][1]
        assert "compared by time per token" in by_rate["notes"][1]
        best = by_loss["plans"][0]["global_batch"]
        assert any(note.startswith(f"Global batch: {best} sequences of 1024") for note in by_loss["notes"])
        # the days are those of the tokens that the batch needs
        budget = by_loss["plans"][0]["budget"]
        assert budget["tokens"] > budget["least_tokens"]

    def test_batches_of_a_range_divide_well_and_stay_within_it(self) -> None:
        tree = answer(*PLAN, "--batch-range", "500:4000")
        first, *others = tree["batch"]["sequences"]
        assert len(others) == 3
        assert 500 <= first <= 515
        assert first % 8 == 0
        assert max(others) <= 4000


class TestSizing:
    WORDS = ("plan", "llama3-8b", "h100:96", "--max-days", "90", "--tokens", "100B", "--top", "1")

    def test_counts_are_compared_at_one_batch(self) -> None:
        tree = answer(*self.WORDS, "--devices-range", "48..96")
        batches = {row["devices"]: row["global_batch"] for row in tree["curve"]}
        assert {48, 96} <= batches.keys()
        # by model size 4 x 2^20 tokens: 512 sequences of 8,192
        assert all(497 <= batch <= 527 for batch in batches.values())
        assert tree["plans"][0]["global_batch"] == batches[tree["smallest"]]
        assert "± 3 % for every count" in tree["notes"][1]

    def test_a_count_that_cannot_use_the_batch_is_named(self) -> None:
        # 32 and 33 sequences: neither is a multiple of 24
        words = ("plan", "gpt2", "h100:24", "--max-days", "9000", "--batch-tokens", "33k", "--top", "1")
        tree = answer(*words, "--devices-range", "8..24", "--fix", "tp=1", "--fix", "pp=1", "--fix", "cp=1")
        assert [row["devices"] for row in tree["curve"]] == [8, 16]
        assert tree["batch_remarks"].keys() == {"24"}

    def test_an_exact_batch_is_that_of_every_count(self) -> None:
        tree = answer(*self.WORDS, "--devices-range", "64..96", "--batch", "480")
        assert {row["global_batch"] for row in tree["curve"]} == {480}


class TestSimulate:
    WORDS = ("simulate", "gpt2", "h100:8")

    def test_a_strategy_gets_the_nearest_batch_that_it_divides(self) -> None:
        tree = answer(*self.WORDS, "dp8", "mb3", "--batch-tokens", "500k")
        assert tree["batch"] == {"sequences": [480], "asked_tokens": 500_000.0, "asked_sequences": [474, 502]}
        assert tree["global_batch"] == 480
        assert answer(*self.WORDS, "dp8", "mb1", "--batch-tokens", "500k")["global_batch"] == 488

    def test_a_named_plan_gets_a_batch_that_it_can_be_built_for(self) -> None:
        words = ("co-shard", "tp=2", "chunks=2", "micro_batch=4", "--batch-tokens", "500k")
        assert answer(*self.WORDS, *words)["global_batch"] in range(474, 503)

    def test_a_plan_file_is_taken_if_its_batch_is_within(self, tmp_path: Path) -> None:
        file = str(tmp_path / "own.plan")
        trainwright(*self.WORDS, "dp8", "mb4", "--batch", "480", "--save-plan", file)
        assert answer(*self.WORDS, file, "--batch-tokens", "500k")["global_batch"] == 480
        said = fails(*self.WORDS, file, "--batch-tokens", "300k")
        assert "is 285 to 301 sequences, and the plan has batch x microbatches = 480" in said

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (("dp8", "mb100", "--batch-tokens", "500k"), "sequences, and the plan needs a multiple of 800"),
            (("dp8", "--batch-tolerance", "3%"), "goes with a batch in tokens"),
            (("co-shard", "tp=2", "micro_batch=999", "--batch-tokens", "500k"), "none suits the plan"),
        ],
    )  # fmt: skip
    def test_a_plan_that_no_batch_suits_is_refused(self, words: tuple[str, ...], said: str) -> None:
        assert said in fails(*self.WORDS, *words)
