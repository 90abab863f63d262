"""Algorithms on islands, asked by JSON."""

import json

import pytest
from pydantic import ValidationError

from trainwright.web.answering import answer
from trainwright.web.questions import Plan


def test_sites_and_algorithms_are_answered_as_the_command_line_does() -> None:
    question = Plan(
        model="gpt2-xl", count=8, sites=2, link="1Gbps", seq=1024, batch=64, algorithm="diloco every=50"
    )
    assert question.command()[:3] == ["plan", "gpt2-xl", "h100:8x2@1Gbps"]
    status, body = answer("plan", question.command(), {})
    tree = json.loads(body)
    assert status == 200
    assert tree["algorithms"][0]["islands"] == 2
    assert tree["algorithms"][0]["step_s"] < tree["plans"][0]["step_s"]
    assert tree["algorithms"][0]["risks"]
    assert tree["figures"]


def test_one_site_is_no_islands() -> None:
    status, body = answer("plan", Plan(model="gpt2-xl", count=8, algorithm="diloco").command(), {})
    assert status == 422
    assert b"is one island" in body


def test_sites_need_a_link_and_a_link_is_a_rate() -> None:
    with pytest.raises(ValidationError, match="sites go with a link"):
        Plan(model="gpt2-xl", sites=2)
    with pytest.raises(ValidationError, match="link"):
        Plan(model="gpt2-xl", sites=2, link="/etc/passwd")
