"""The check before the first step: wrong gradients stop a run, right ones are confirmed in one line."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch")

import torch
from torch import nn

from tests.runtime import faulty_rules, own_modules
from tests.runtime import launching as launched
from trainwright.plan.expand import expand
from trainwright.plan.strategy import parse_strategy
from trainwright.plan.text import render_plan
from trainwright.runtime.own_module import build_own
from trainwright.runtime.run_check import needs_check
from trainwright.runtime.shortening import count_layers, shorten
from trainwright.runtime.trainer import Recipe
from trainwright.runtime.training import Keeping, Training
from trainwright.runtime.without_dropout import WithoutDropout

FAULTY, OWN = str(Path(faulty_rules.__file__)), str(Path(own_modules.__file__))
CHECKED = re.compile(
    r"checked: loss and (\d+) gradients of the first microbatch( on \d+ of \d+ layers)? equal one process "
    r"within ([0-9.e-]+)"
)
SHORT = ("--steps", "1")


@pytest.mark.parametrize("plan", ["dp2", "tp2 sp", "pp2 mb2 1f1b", "dp2 zero3"])
def test_a_right_run_says_that_it_was_checked(plan: str) -> None:
    result = launched.run(f"{FAULTY}:right", *plan.split(), *SHORT)
    found = CHECKED.search(result.stdout)
    assert (result.returncode, result.stderr) == (0, "")
    assert found is not None
    assert int(found[1]) == 36  # two layers of 16, two tables, a norm of 2
    assert float(found[3]) < 1e-5


def test_dropout_is_off_in_the_check() -> None:
    result = launched.run(f"{OWN}:dropping", "dp2", *SHORT)
    assert CHECKED.search(result.stdout), result.stdout + result.stderr


def test_a_run_in_bf16_is_checked_with_the_rounding_of_bf16() -> None:
    result = launched.run(f"{FAULTY}:right", "tp2", *SHORT, "--precision", "bf16")
    found = CHECKED.search(result.stdout)
    assert found is not None, result.stdout + result.stderr
    assert 1e-4 < float(found[3]) < 0.2


def test_a_doubled_gradient_stops_the_run_and_is_named() -> None:
    result = launched.run(f"{FAULTY}:doubled", "dp2", *SHORT)
    assert result.returncode == 1
    assert "step 1" not in result.stdout
    assert re.search(r"check of plan .*gradients differ: \S+ by \S+ of its largest element", result.stderr)
    assert "its trace is right, its execution under the plan is not" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_lost_derivative_stops_the_run() -> None:
    result = launched.run(f"{FAULTY}:forgotten", "dp2", *SHORT)
    assert result.returncode == 1
    assert "nothing was trained" in result.stderr


def test_no_check_skips_it() -> None:
    result = launched.run(f"{FAULTY}:doubled", "dp2", *SHORT, "--no-check")
    assert result.returncode == 0
    assert not CHECKED.search(result.stdout)


def test_a_module_that_is_too_large_is_checked_with_fewer_layers() -> None:
    result = launched.run(f"{FAULTY}:large", "dp2", *SHORT)
    found = CHECKED.search(result.stdout)
    assert found is not None, result.stdout + result.stderr
    assert found[2] == " on 1 of 2 layers"


def test_losses_are_the_same_with_and_without_it(tmp_path: Path) -> None:
    for number, more in enumerate(((), ("--no-check",))):
        launched.run(f"{OWN}:dropping", "dp2", *SHORT, *more, "--metrics", str(tmp_path / f"{number}.jsonl"))
    first, second = (launched.losses(tmp_path / f"{number}.jsonl") for number in range(2))
    assert first == second


def test_dropout_keeps_everything_while_it_is_switched_off() -> None:
    x = torch.randn(5, 7)
    with WithoutDropout():
        assert torch.equal(nn.Dropout(0.3).train()(x), x)
        q = torch.randn(1, 2, 4, 8)
        dropped = nn.functional.scaled_dot_product_attention(q, q, q, dropout_p=0.5)
    torch.testing.assert_close(dropped, nn.functional.scaled_dot_product_attention(q, q, q))


def test_a_shorter_module_keeps_a_layer_of_every_kind() -> None:
    def layer(width: int) -> nn.Module:
        return nn.Sequential(nn.Linear(4, width), nn.Linear(width, 4))

    module = nn.Module()
    module.layers = nn.ModuleList(layer(width) for width in (8, 8, 16, 8, 16, 8))
    assert count_layers(shorten(module, 1)) == 3  # 8, 8, 16
    module.layers = nn.ModuleList(layer(8) for _ in range(6))
    assert count_layers(shorten(module, 4)) == 4


def test_a_restart_under_the_same_plan_is_not_checked_again(tmp_path: Path) -> None:
    training = _training(Keeping(checkpoints=tmp_path))
    assert needs_check(training, restarted=False)
    assert needs_check(training, restarted=True)  # no checkpoint: nothing has run yet
    assert not needs_check(replace(training, check=False), restarted=False)
    assert render_plan(training.plan) == training.note["plan"]


def _training(keeping: Keeping) -> Training:
    learner = build_own(f"{FAULTY}:right", 16, 0, None, "fp32")
    plan = replace(expand(parse_strategy("dp2"), learner.graph, 8), precision="fp32")
    return Training(
        learner=learner, plan=plan, samples=own_modules.samples(), recipe=Recipe(), keeping=keeping
    )
