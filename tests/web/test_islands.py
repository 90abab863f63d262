"""Algorithms on islands, asked by JSON."""

import json
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from pydantic import ValidationError

from trainwright.api.fields import command_words
from trainwright.api.plan_request import PlanRequest
from trainwright.plan.islands import APART
from trainwright.web.answering import answer
from trainwright.web.questions import Plan


def test_sites_and_algorithms_are_answered_as_the_command_line_does() -> None:
    question = Plan(
        model="gpt2-xl", count=8, sites=2, link="1Gbps", seq=1024, batch=64, algorithm="diloco every=50"
    )
    request = question.build(PlanRequest)
    assert (request.model, request.cluster) == ("gpt2-xl", "h100:8x2@1Gbps")
    status, body = answer("plan", request)
    tree = json.loads(body)
    assert status == 200
    assert tree["algorithms"][0]["islands"] == 2
    assert tree["algorithms"][0]["step_s"] < tree["plans"][0]["step_s"]
    assert tree["algorithms"][0]["risks"]
    assert tree["figures"]
    assert [each["name"] for each in tree["island_figures"]] == ["islands_step", "islands_risk"]
    (told,) = tree["beside"]
    assert told["risk"] in tree["algorithms"][0]["risks"]
    assert told["risky"]
    assert sum(line.startswith("Loss ") for line in told["lines"]) == len(tree["algorithms"][0]["risks"])


def test_one_site_is_no_islands() -> None:
    status, body = answer("plan", Plan(model="gpt2-xl", count=8, algorithm="diloco").build(PlanRequest))
    assert status == 422
    assert b"is one island" in body


def test_sites_need_a_link_and_a_link_is_a_rate() -> None:
    with pytest.raises(ValidationError, match="sites go with a link"):
        Plan(model="gpt2-xl", sites=2)
    with pytest.raises(ValidationError, match="link"):
        Plan(model="gpt2-xl", sites=2, link="/etc/passwd")
    with pytest.raises(ValidationError, match="link_latency goes with sites"):
        Plan(model="gpt2-xl", link_latency="20ms")


def test_a_latency_follows_the_link() -> None:
    question = Plan(model="gpt2-xl", count=8, network="aws-p5", sites=2, link="1Gbps", link_latency="20ms")
    assert question.build(PlanRequest).cluster == "h100:8x2@aws-p5@1Gbps@20ms"


def test_islands_go_with_an_algorithm_and_algorithms_without_a_front() -> None:
    for stated, text in (
        ({"islands": 2}, b"--islands"), ({"algorithm": "diloco", "pareto": True}, b"--pareto"),
    ):  # fmt: skip
        status, body = answer("plan", Plan(model="gpt2-xl", **stated).build(PlanRequest))
        assert (status, text in body) == (422, True)


def test_the_catalog_has_every_algorithm_that_a_plan_takes() -> None:
    listed = json.loads(answer("catalog", None)[1])["algorithms"]
    assert [each["name"] for each in listed] == list(APART)
    assert listed[1]["hyperparameters"] == "every=50 rate=0.7 momentum=0.9"


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("link", "fast", 'link: "fast" is not written as it must be; write it like 10Gbps'),
        ("link_latency", "@", 'link_latency: "@" is not written as it must be; write it like 20ms'),
        ("algorithm", "Dilocco", "did you mean"),
        ("fix", ["tp:8"], '--fix "tp:8": has no value; write it like pp=4'),
    ],
)
def test_what_is_not_written_as_it_must_be_is_told_with_an_example(
    address: str, field: str, value: object, text: str
) -> None:
    body = {"model": "gpt2-xl", "sites": 2, "link": "1Gbps", field: value}
    request = Request(f"{address}/api/plan", json.dumps(body).encode(), {"content-type": "application/json"})
    with pytest.raises(HTTPError) as refused:
        urlopen(request)
    assert refused.value.code == 422
    assert text in json.load(refused.value)["error"]


def test_all_variants_of_a_plan_can_be_asked_for() -> None:
    for stated in (True, False):
        request = Plan(model="gpt2-xl", all_variants=stated).build(PlanRequest)
        assert ("--all-variants" in command_words("plan", request)) is stated
