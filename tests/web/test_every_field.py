"""Every field of every request changes the answer, or is an error that names it: none is ignored."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields
from functools import cache
from typing import Any
from unittest.mock import patch

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from fastapi.testclient import TestClient

from tests.option_modes import PLANS, SIMULATIONS
from tests.option_spies import shared_results
from trainwright.api.fields import Request, flag_of
from trainwright.api.plan_request import PlanRequest
from trainwright.api.requests import SimulateRequest
from trainwright.api.terms_fields import TermsFields
from trainwright.cli.study import study_parser
from trainwright.study import STUDIES
from trainwright.web.answering import packed_answer
from trainwright.web.app import build_app
from trainwright.web.questions import Plan, Simulate, Subject, TracedStep
from trainwright.web.settings import Settings
from trainwright.web.workers import Question

CONFIG = {
    "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4,
    "intermediate_size": 256, "vocab_size": 256, "max_position_embeddings": 128,
}  # fmt: skip
OTHER_CONFIG = {"config": {**CONFIG, "num_hidden_layers": 2}}
DESCRIPTIONS = ("command", "notes")  # keys that describe a question, not its answer
OWN = {  # fields that are the server's own way to name a model and a cluster
    "model": "gpt2-medium", "config": CONFIG, "device": "a100", "count": 8, "network": "dgx-a100", "sites": 4,
    "link": "20Gbps", "link_latency": "99ms", "cost": "roofline",
}  # fmt: skip
TRACED = {**OWN, "plan": "dp4 mb8"}
FILES = {"model", "cluster", "runs", "cost", "plan"}  # fields of requests that may name files


@dataclass(frozen=True, kw_only=True, eq=False)
class RequestMode:
    """One kind of question that an endpoint answers: a body, and a sample value for each field."""

    name: str
    path: str
    body: Mapping[str, Any]
    samples: Mapping[str, Any]

    def __str__(self) -> str:
        return self.name


SITES = {"count": 2, "sites": 2, "link": "10Gbps"}
MODES = (
    RequestMode(
        name="plan", path="/api/plan", body={"model": "gpt2", "count": 4, "batch": 64}, samples=OWN
    ),
    RequestMode(
        name="plan-sites", path="/api/plan", body={"model": "gpt2", "batch": 64, **SITES}, samples=OWN
    ),
    RequestMode(
        name="plan-config", path="/api/plan", body={"config": CONFIG, "count": 2, "batch": 64},
        samples=OWN | OTHER_CONFIG,
    ),
    RequestMode(
        name="plan-algorithm", path="/api/plan", samples=OWN | OTHER_CONFIG,
        body={"config": CONFIG, "batch": 64, **SITES, "algorithm": "diloco"},
    ),
    RequestMode(
        name="plan-recommender", path="/api/plan", samples=OWN | {"model": "gpt2"},
        body={"model": "dlrm-mlperf", "device": "h100", "count": 4},
    ),
    RequestMode(
        name="simulate", path="/api/simulate", samples=TRACED,
        body={"model": "gpt2", "count": 4, "batch": 64, "plan": "dp4 mb16"},
    ),
    RequestMode(
        name="simulate-sites", path="/api/simulate", samples=TRACED | OTHER_CONFIG,
        body={"config": CONFIG, "batch": 64, **SITES, "plan": "dp4 mb16"},
    ),
    RequestMode(
        name="trace", path="/api/trace", samples=TRACED,
        body={"model": "gpt2", "count": 4, "batch": 32, "plan": "co-shard tp=2 chunks=2 micro_batch=8"},
    ),
    RequestMode(
        name="trace-sites", path="/api/trace", samples=TRACED | OTHER_CONFIG,
        body={"config": CONFIG, "batch": 64, **SITES, "plan": "co-shard tp=2 chunks=2 micro_batch=8"},
    ),
)  # fmt: skip
OTHER_BODIES = ("/api/compare", "/api/sweep", "/api/study/{name}")  # with tests of their own below


async def answer(_: object, question: Question, ticket: str = "") -> tuple[int, bytes]:
    """What a worker answers, in this process."""
    return packed_answer(*question)


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    """A client of a server that answers without workers."""
    with ExitStack() as stack:
        stack.enter_context(patch("trainwright.web.workers.Workers.ask", answer))
        stack.enter_context(shared_results())
        yield TestClient(build_app(Settings()), base_url="http://localhost")


@cache
def schema() -> Mapping[str, Any]:
    found: Mapping[str, Any] = TestClient(build_app(Settings()), base_url="http://localhost").get(
        "/api/openapi.json"
    ).json()  # fmt: skip
    return found


def bodies() -> dict[str, list[str]]:
    """The fields of the body of every endpoint that has one."""
    found = {}
    for path, methods in schema()["paths"].items():
        for operation in methods.values():
            if "requestBody" in operation:
                named = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
                found[path] = list(schema()["components"]["schemas"][named.rpartition("/")[2]]["properties"])
    return found


def every_field() -> list[Any]:
    return [pytest.param(mode, name, id=f"{mode}-{name}") for mode in MODES for name in mode.samples]


@pytest.mark.parametrize(
    ("body", "request_type", "but"),
    [
        (Plan, PlanRequest, set()), (Simulate, SimulateRequest, set()),
        (TracedStep, SimulateRequest, {"free", *TermsFields.__dataclass_fields__}),
    ],
)  # fmt: skip
def test_a_body_has_every_field_of_its_request_but_files(
    body: type[Subject], request_type: type[Request], but: set[str]
) -> None:
    known = {each.name for each in fields(request_type)} - but  # type: ignore[arg-type]
    assert set(body.model_fields) - set(OWN) - {"plan"} == known - FILES
    modes = PLANS if request_type is PlanRequest else SIMULATIONS
    stated = {"model": "gpt2", **({"plan": "dp8"} if request_type is SimulateRequest else {})}
    for name in known - FILES:
        sample = modes[0].samples[flag_of(name)]
        value = True if sample is None else [sample] if name in ("fix", "change") else sample
        request = body(**stated, **{name: value}).build(request_type)  # type: ignore[arg-type]
        assert getattr(request, name) == value
        assert request.cluster == "h100:8"  # type: ignore[attr-defined]


def test_every_endpoint_with_a_body_is_tried() -> None:
    assert set(bodies()) == {*(mode.path for mode in MODES), *OTHER_BODIES}
    assert {path: bodies()[path] for path in OTHER_BODIES} == {
        "/api/compare": ["predicted", "measured"], "/api/sweep": ["toml"], "/api/study/{name}": ["options"],
    }  # fmt: skip


@pytest.mark.parametrize(("mode", "name"), every_field())
def test_a_field_is_honoured_or_refused(client: TestClient, mode: RequestMode, name: str) -> None:
    assert name in mode.samples, f"{name} is new: give it a value"
    after = client.post(mode.path, json={**mode.body, name: mode.samples[name]})
    if after.status_code != 200:
        assert after.status_code == 422
        assert name.replace("_", "-") in after.json()["error"].replace("_", "-")  # of the body or the command
        return
    before = client.post(mode.path, json=mode.body)
    assert before.status_code == 200, before.text
    assert undescribed(before.json()) != undescribed(after.json())


def undescribed(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: value for key, value in tree.items() if key not in DESCRIPTIONS}


@pytest.mark.parametrize("path", bodies())
def test_an_unknown_field_is_refused(client: TestClient, path: str) -> None:
    body = next((dict(mode.body) for mode in MODES if mode.path == path), {})
    refused = client.post(path.format(name="scaling"), json={**body, "surplus": 1})
    assert refused.status_code == 422
    if path != "/api/compare" and path != "/api/sweep":  # which name what is missing first
        assert refused.json()["error"].startswith("surplus: ")


def test_an_unknown_query_parameter_is_refused_on_every_endpoint(client: TestClient) -> None:
    for path, methods in schema()["paths"].items():
        for method in methods:
            refused = client.request(method, f"{path.format(name='x', ticket='x')}?batch=8&top=")
            assert refused.status_code == 422
            assert 'query parameter "batch"' in refused.json()["error"]
            known = [each["name"] for each in methods[method].get("parameters", ())]
            assert known == [each for each in ("name", "ticket") if f"{{{each}}}" in path]  # of the path


def test_a_ticket_that_cannot_be_asked_for_is_refused(client: TestClient) -> None:
    refused = client.post("/api/plan", json=MODES[0].body, headers={"x-ticket": "not a ticket"})
    assert (refused.status_code, "x-ticket" in refused.json()["error"]) == (422, True)


def test_the_default_objective_is_refused_too_where_none_applies(client: TestClient) -> None:
    refused = client.post("/api/plan", json={"model": "dlrm-mlperf", "count": 4, "objective": "time"})
    assert "--objective" in refused.json()["error"]


def test_both_traces_of_a_comparison_are_read(client: TestClient) -> None:
    body = next(mode.body for mode in MODES if mode.name == "trace-sites")
    one = client.post("/api/trace", json=body).json()
    other = client.post("/api/trace", json={**body, "device": "a100"}).json()
    pairs = ((one, one), (one, other), (other, one))
    answers = [
        client.post("/api/compare", json={"predicted": predicted, "measured": measured}).json()["step"]
        for predicted, measured in pairs
    ]
    assert len({(each["predicted_s"], each["measured_s"]) for each in answers}) == 3


class StartedJob:
    """A job of which only the arguments matter."""

    def __init__(self, kind: str, arguments: list[str], command: str) -> None:
        self.name, self.arguments, self.command = "job", arguments, command


def test_the_text_of_a_sweep_reaches_its_job(client: TestClient) -> None:
    jobs = []

    def start(_: object, *stated: Any) -> StartedJob:
        jobs.append(StartedJob(*stated))
        return jobs[-1]

    with patch("trainwright.web.jobs.Jobs.start", start):
        assert client.post("/api/sweep", json={"toml": 'name = "x"'}).status_code == 202
    assert [job.arguments for job in jobs] == [['name = "x"']]


def study_options() -> list[Any]:
    """Every option of every study."""
    found = []
    for name in STUDIES:
        listed = [each for each in study_parser(name)._actions if each.dest != "help"]
        found += [(name, each.option_strings[-1], each.nargs == 0) for each in listed]
    return found


@pytest.mark.parametrize(("name", "flag", "is_switch"), study_options())
def test_an_option_of_a_study_reaches_its_job_or_is_refused(
    client: TestClient, name: str, flag: str, is_switch: bool
) -> None:
    started: list[Any] = []

    def start(_: object, *stated: Any) -> StartedJob:
        started.append(stated)
        return StartedJob(*stated)

    value = True if is_switch else "8"
    with patch("trainwright.web.jobs.Jobs.start", start):
        reply = client.post(f"/api/study/{name}", json={"options": {flag.lstrip("-"): value}})
    if reply.status_code == 422:
        assert flag.lstrip("-").replace("-", "_") in reply.json()["error"].replace("-", "_")
        assert not started
        return
    ((kind, (request,), command),) = started
    assert (kind, getattr(request, flag.lstrip("-").replace("-", "_"))) == ("study", value)
    assert command == f"trainwright study {name} {flag}{'' if is_switch else ' 8'}"
