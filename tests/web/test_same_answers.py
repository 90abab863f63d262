"""Command line, Python and HTTP: random requests have the same answer, or the same error.

A sample by default; SAME_ANSWERS=200 sets how many (`make same-answers`).
"""

import io
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from typing import Any
from unittest.mock import patch

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

import trainwright
from tests.option_spies import shared_results
from trainwright.api.fields import Request, command_words
from trainwright.api.plan_request import PlanRequest
from trainwright.api.requests import SimulateRequest
from trainwright.cli.main import main
from trainwright.errors import BadInput, InfeasiblePlan, TrainwrightError
from trainwright.web.answering import packed_answer
from trainwright.web.app import build_app
from trainwright.web.settings import Settings
from trainwright.web.workers import Question

COUNT = int(os.environ.get("SAME_ANSWERS", "12"))
SHOWN = ("command", "figures", "island_figures", "beside", "lines", "blocks")  # what a page shows too
CLUSTERS: Mapping[str, dict[str, object]] = {
    "h100:4": {"device": "h100", "count": 4},
    "a100:8@dgx-a100": {"device": "a100", "count": 8, "network": "dgx-a100"},
    "v100:1": {"device": "v100", "count": 1},
    "h100:2x2@10Gbps@20ms": {
        "device": "h100", "count": 2, "sites": 2, "link": "10Gbps", "link_latency": "20ms",
    },
}  # fmt: skip
MODELS = ("gpt2", "bert-base", "gpt2-xl", "deepseek-v2-lite", "dlrm-mlperf", "no-such-model")
SUBJECT: Mapping[str, tuple[Any, ...]] = {
    "seq": (512, "256", 0), "change": ({"memory": 0.9}, ["compute=2", "latency=3"], {"speed": 2}),
    "stack": ("generic", "torchtitan", "nothing"), "cost": ("roofline", "calibrated"),
    "optimizer": ("muon", "sgd"), "grad_dtype": ("bf16",), "expert_imbalance": (1.5, "2", 3, "0.5", 1e9, "x"),
    "batch": (64, "128", 48, -1),
    "batch_tokens": ("64k", 65536, "many"), "batch_tolerance": ("20%", 0.2),
    "tokens": ("1T", 2e12, "1 GB"), "target_loss": (3.5, "1.0"), "scaling_law": ("besiroglu", "none"),
    "critical_batch": ("1M", "none"), "failures": ("1e-3 /device-day",), "restart": ("15 min", 900, "15"),
    "jitter": (0.01,), "price": ("2.5 $/h", 3), "own": (True,), "capital": ("20000 $",), "grid": (0.1,),
}  # fmt: skip
PLAN: Mapping[str, tuple[Any, ...]] = {
    **SUBJECT, "precision": ("fp16", "fp8", "int3"), "objective": ("cost", "memory", "fun"),
    "fix": ({"pp": 1}, {"tp": [1, 2]}, ["zero=3"], ["dp"], {"dp": 64}), "max_tp": (1, "2"), "max_mb": (4,),
    "top": (1, 3, "0"), "all_variants": (True,), "pareto": (True,), "oom_risk": ("20%", 0.3),
    "headroom": ("10%",), "batch_range": ((32, 64), "64:32"), "max_days": (9000, 1e-6),
    "max_dollars": (9e9,), "devices_range": ((1, 2), "2"), "algorithm": ("local-sgd", ["diloco"], "dil"),
    "islands": (2, 3),
}  # fmt: skip
SIMULATE: Mapping[str, tuple[Any, ...]] = {
    **SUBJECT, "algorithm": ("diloco every=20",), "islands": (2,), "free": (True,),
}  # fmt: skip
PLANS = ("dp4 mb1", "dp2 tp2 mb2 zero1", "pp2 dp2 mb1 1f1b", "co-shard tp=2 chunks=2", "dp2 mb8", "tp9")


@st.composite
def stated(draw: st.DrawFn, samples: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    """Some fields, each with a value that is good, or not."""
    names = draw(st.lists(st.sampled_from(sorted(samples)), unique=True, max_size=4))
    return {name: draw(st.sampled_from(samples[name])) for name in names}


async def answer(_: object, question: Question, ticket: str = "") -> tuple[int, bytes]:
    """What a worker answers, in this process."""
    return packed_answer(*question)


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    """A client of a server that answers without workers; slow functions compute once for equal arguments."""
    with ExitStack() as stack:
        stack.enter_context(patch("trainwright.web.workers.Workers.ask", answer))
        stack.enter_context(shared_results())
        yield TestClient(build_app(Settings()), base_url="http://localhost")


def by_python(function: Any, values: tuple[str, ...], keywords: dict[str, Any]) -> tuple[int, Any]:
    """The exit code that a command would have, and the tree or the message."""
    try:
        result = function(*values, **keywords)
        return 0, json.loads(result.to_json())
    except InfeasiblePlan as error:
        return 2, str(error)
    except TrainwrightError as error:
        return 1, str(error)


def by_command(request: Request, command: str) -> tuple[int, Any]:
    """The same by the command line."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([*command_words(command, request), "--json"])
    message = err.getvalue().removeprefix("trainwright: ").rstrip("\n")
    return (0, json.loads(out.getvalue())) if out.getvalue() else (code, message)


def by_http(client: TestClient, path: str, body: dict[str, Any]) -> tuple[int, Any]:
    """The same by HTTP."""
    reply = client.post(path, json=body)
    code = {200: 0, 422: 1, 409: 2}[reply.status_code]
    tree = reply.json()
    return code, tree["error"] if code else {key: tree[key] for key in tree if key not in SHOWN}


def compared(found: tuple[int, Any]) -> tuple[int, Any]:
    """An answer as it is; a message without the quotes that tell text from numbers."""
    code, tree = found
    return code, tree.replace('"', "") if isinstance(tree, str) else tree


@seed(20261118)
@settings(max_examples=COUNT, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_same_request_has_the_same_answer_everywhere(client: TestClient, data: st.DataObject) -> None:
    model, cluster = data.draw(st.sampled_from(MODELS)), data.draw(st.sampled_from(sorted(CLUSTERS)))
    is_plan = data.draw(st.booleans())
    keywords = data.draw(stated(PLAN if is_plan else SIMULATE))
    values = (model, cluster) if is_plan else (model, cluster, data.draw(st.sampled_from(PLANS)))
    command, function = ("plan", trainwright.plan) if is_plan else ("simulate", trainwright.simulate)
    by_keywords = by_python(function, values, keywords)
    body = {"model": model, **CLUSTERS[cluster], **keywords, **({} if is_plan else {"plan": values[2]})}
    assert compared(by_http(client, f"/api/{command}", body)) == compared(by_keywords)
    with suppress(BadInput):  # of fields that exclude each other, which is told above
        request = (PlanRequest if is_plan else SimulateRequest)(*values, **keywords)
        assert compared(by_command(request, command)) == compared(by_keywords)
