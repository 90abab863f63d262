"""The batch in tokens, asked by JSON."""

import json

import pytest

from trainwright.api.fields import command_words
from trainwright.api.plan_request import PlanRequest
from trainwright.api.requests import SimulateRequest
from trainwright.errors import BadInput
from trainwright.web.answering import answer
from trainwright.web.questions import Plan, Simulate


def test_a_batch_in_tokens_is_answered_as_the_command_line_does() -> None:
    request = Plan(model="gpt2", count=8, batch_tokens="500k", batch_tolerance="5%", top=1).build(PlanRequest)
    assert command_words("plan", request)[3:7] == ["--batch-tokens", "500k", "--batch-tolerance", "5%"]
    status, body = answer("plan", request)
    tree = json.loads(body)
    assert status == 200
    assert tree["batch"]["asked_sequences"] == [464, 512]
    assert tree["plans"][0]["global_batch"] == tree["batch"]["sequences"][0] == 512


def test_a_step_is_simulated_at_a_batch_that_its_plan_divides() -> None:
    question = Simulate(model="gpt2", count=8, batch_tokens="500k", plan="dp8 mb3")
    status, body = answer("simulate", question.build(SimulateRequest))
    assert status == 200
    assert json.loads(body)["global_batch"] == 480


def test_a_batch_is_stated_once_and_a_tolerance_with_tokens() -> None:
    with pytest.raises(BadInput, match=r"--batch-tokens .*is not allowed with argument --batch"):
        Plan(model="gpt2", batch=8, batch_tokens="1M").build(PlanRequest)
    for stated in ({"batch_tolerance": "5%"}, {"batch_tokens": "1M", "batch_tolerance": "5"}):
        status, body = answer("plan", Plan(model="gpt2", **stated).build(PlanRequest))
        assert (status, b"--batch-tolerance" in body) == (422, True)
