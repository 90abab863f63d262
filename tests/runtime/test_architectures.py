"""A sample of `make architectures`: every gradient under a plan is that of the module on one process."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("transformers")

ROOT = Path(__file__).parents[2]
PLANS = ("tp+sp", "interleaved", "zero3", "ep")
SAMPLE = ("llama", "bert_classifier", "mixtral", "soft_mixture", "towers")
# Architectures whose gradients, or whose gradient norm, once were wrong, with the cause. All but meta_llama
# trained without a message.
REPAIRED = {
    ("llama4_text", "pp 1F1B"): "complex rotary embeddings: no gradients of queries and keys",
    ("meta_llama", "pp 1F1B"): "the same as users write it; keys repeated by expand ended in a traceback",
    ("gptj", "tp"): "attention and FFN read one norm: doubled gradients of the FFN",
    ("cohere", "tp"): "the same",
    ("olmo2", "tp"): "a norm over all heads was split",
    ("mamba2", "tp"): "one projection into results that are split differently",
    ("bert", "pp 1F1B"): "a tied weight counted twice in the gradient norm",
}
Verdicts = dict[tuple[str, str], str]


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    """The results of all samples, from one command."""
    return run_suite(SAMPLE, PLANS, tmp_path_factory.mktemp("architectures"))


@pytest.fixture(scope="module")
def repaired(tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    """The results of the architectures that once were wrong, from one command for each plan."""
    found: Verdicts = {}
    for plan in dict.fromkeys(plan for _, plan in REPAIRED):
        names = [name for name, each in REPAIRED if each == plan]
        found |= run_suite(names, [plan], tmp_path_factory.mktemp("repaired"))
    return found


def run_suite(names: Sequence[str], plans: Sequence[str], directory: Path) -> Verdicts:
    """The verdicts of one command by architecture and plan; what it prints if it fails."""
    kept = directory / "verdicts.jsonl"
    chosen = [word for plan in plans for word in ("--plan", plan)]
    ran = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "make_architectures.py"), *names, *chosen, "--kept", str(kept)],
        capture_output=True, text=True, timeout=600, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    stored = [json.loads(line)["verdict"] for line in kept.read_text(encoding="utf-8").splitlines()]
    return {(each["name"], each["plan"]): each["result"] for each in stored}


@pytest.mark.parametrize("name", SAMPLE)
def test_every_gradient_is_that_of_one_process(name: str, verdicts: Verdicts) -> None:
    found = {plan: result for (each, plan), result in verdicts.items() if each == name}
    assert found == dict.fromkeys(found, "equal")
    assert len(found) == len(PLANS) - (name != "mixtral")


@pytest.mark.parametrize(("name", "plan"), REPAIRED)
def test_an_architecture_that_was_wrong_is_equal(name: str, plan: str, repaired: Verdicts) -> None:
    assert repaired[name, plan] == "equal", REPAIRED[name, plan]
