"""The batch in tokens, asked by JSON."""

import json

import pytest
from pydantic import ValidationError

from trainwright.web.answering import answer
from trainwright.web.questions import Plan, Simulate


def test_a_batch_in_tokens_is_answered_as_the_command_line_does() -> None:
    question = Plan(model="gpt2", count=8, batch_tokens="500k", batch_tolerance="5%", top=1)
    assert question.command()[3:7] == ["--batch-tokens", "500k", "--batch-tolerance", "5%"]
    status, body = answer("plan", question.command(), {})
    tree = json.loads(body)
    assert status == 200
    assert tree["batch"]["asked_sequences"] == [464, 512]
    assert tree["plans"][0]["global_batch"] == tree["batch"]["sequences"][0] == 512


def test_a_step_is_simulated_at_a_batch_that_its_plan_divides() -> None:
    question = Simulate(model="gpt2", count=8, batch_tokens="500k", plan="dp8 mb3")
    status, body = answer("simulate", question.command(), {})
    assert status == 200
    assert json.loads(body)["global_batch"] == 480


def test_a_batch_is_stated_once_and_a_tolerance_with_tokens() -> None:
    with pytest.raises(ValidationError, match="two ways to state one"):
        Plan(model="gpt2", batch=8, batch_tokens="1M")
    with pytest.raises(ValidationError, match="batch_tolerance goes with batch_tokens"):
        Plan(model="gpt2", batch_tolerance="5%")
    with pytest.raises(ValidationError, match="batch_tolerance"):
        Plan(model="gpt2", batch_tokens="1M", batch_tolerance="5")
