"""`--expert-imbalance`, from plan to simulate and advise."""

import json
from pathlib import Path

import pytest

import trainwright
from tests.commands import fails
from trainwright.errors import BadInput
from trainwright.sweep.load import parse_sweep
from trainwright.sweep.ready import build_question

PLAN = "dp8 ep8 mb1 zero1"
CASE = ("deepseek-v2-lite", "h100:8")


def step_s(plan: str = PLAN, **options: object) -> float:
    return trainwright.simulate(*CASE, plan, stack="megatron-core", batch=16, **options).step_s


def test_above_the_stacks_own_it_makes_steps_longer_and_below_it_shorter() -> None:
    """The stack's own imbalance of 1.1 is what times were fitted at."""
    assert step_s() == step_s(expert_imbalance=1.1)
    assert step_s(expert_imbalance=1.0) < step_s() < step_s(expert_imbalance=1.5)
    assert step_s(expert_imbalance=1.5) < step_s(expert_imbalance=2.0)


def test_without_expert_parallelism_every_rank_has_as_many_tokens() -> None:
    assert step_s("dp8 mb1 zero1") == step_s("dp8 mb1 zero1", expert_imbalance=3.0)


def test_it_adds_to_experts_and_their_all_to_alls_in_proportion() -> None:
    def parts(**options: object) -> dict[str, float]:
        plan = trainwright.plan(
            *CASE, stack="megatron-core", batch=16, seq=1024, top=1,
            fix={"dp": 8, "ep": 8, "mb": 1, "zero": 1, "recompute": "none", "offload": "none"}, **options,
        )  # fmt: skip
        return dict(plan.best.time_s)

    even, uneven = parts(), parts(expert_imbalance=2.2)  # 2.2 of 1.1: twice as long
    assert uneven["ep"] == pytest.approx(2.0 * even["ep"])
    assert even["matmul"] < uneven["matmul"] < 2.0 * even["matmul"]
    assert uneven["attention"] == pytest.approx(even["attention"])
    assert uneven["dp"] == pytest.approx(even["dp"], rel=0.2)  # hides behind more compute


def test_an_answer_carries_it_to_simulate_and_advise(tmp_path: Path) -> None:
    path = tmp_path / "answer.json"
    plans = trainwright.plan(*CASE, stack="megatron-core", expert_imbalance=1.5, top=1)
    plans.save_json(path)
    assert json.loads(path.read_text())["expert_imbalance"] == 1.5
    assert any(note.startswith("Expert imbalance 1.5") for note in plans.notes)
    assert trainwright.simulate(*CASE, path).to_dict()["expert_imbalance"] == 1.5
    assert any(note.startswith("Expert imbalance 1.5") for note in trainwright.advise(path, "h100:8").notes)


def test_a_sweep_states_it_and_can_have_it_as_an_axis() -> None:
    text = 'model = "deepseek-v2-lite"\ncluster = "h100:8"\nexpert_imbalance = 1.5\n'
    question, _ = build_question(parse_sweep(text).setting, "time")
    assert question.job.stack.stated_imbalance == 1.5
    axis = '[[axis]]\nfield = "expert_imbalance"\nvalues = [1.2, 1.6]\n'
    assert len(parse_sweep(text + axis)) == 2


@pytest.mark.parametrize(
    ("model", "factor", "rule"),
    [
        ("deepseek-v2-lite", "0.9", "must be 1"),
        ("deepseek-v2-lite", "nan", "must be 1"),
        ("deepseek-v2-lite", "much", "is not a number"),
        ("deepseek-v2-lite", "65", "no rank has more than 64 times the mean"),
        ("deepseek-v2-lite", "inf", "no rank has more than 64 times the mean"),
        ("llama3-8b", "1.5", "llama3-8b has no experts; leave it out"),
        ("dlrm-mlperf", "1.5", "has no experts"),
    ],
)
def test_a_bad_value_is_one_line(
    model: str, factor: str, rule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["plan", model, "h100:8"], ["simulate", model, "h100:8", "dp8"]):
        assert rule in fails(*command, "--expert-imbalance", factor)
    with pytest.raises(BadInput, match=rule):
        trainwright.plan(model, "h100:8", expert_imbalance=factor)
