"""Requests to JSON: what a worker does for a question."""

import gzip
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from trainwright.api.fields import Request, render_command
from trainwright.errors import BadInput, InfeasiblePlan, TrainwrightError

if TYPE_CHECKING:
    from trainwright.api.low_communication import LowCommunicationPlans
    from trainwright.api.plan_request import PlanRequest
    from trainwright.api.requests import CompareRequest, SimulateRequest
    from trainwright.report.islands import ApartSummary

BAD, NONE_FITS = 422, 409  # statuses of answers that are errors
_LEVEL = 6  # of compression


def packed_answer(kind: str, request: Request | None) -> tuple[int, bytes]:
    """An answer as it is kept and sent: compressed, and here, so that the server has only to pass it on."""
    status, body = answer(kind, request)
    return status, packed(body)


def packed(body: bytes) -> bytes:
    """A body, compressed; the same bytes every time."""
    return gzip.compress(body, _LEVEL, mtime=0)


def answer(kind: str, request: Request | None) -> tuple[int, bytes]:
    """The status and body of an answer."""
    from trainwright.report.page import compact_json

    try:
        found = KINDS[kind](request)
        return 200, (found if isinstance(found, str) else compact_json(found)).encode()
    except InfeasiblePlan as error:
        return NONE_FITS, _error(error)
    except TrainwrightError as error:
        return BAD, _error(error)
    except (RecursionError, OverflowError, MemoryError) as error:
        rule = f"is too large ({type(error).__name__})"
        return BAD, _error(BadInput("question", kind, rule, "ask for less"))


def _error(error: Exception) -> bytes:
    return json.dumps({"error": str(error)}, ensure_ascii=False).encode()


def _plan(request: "PlanRequest") -> Mapping[str, object]:
    from trainwright.api.low_communication import LowCommunicationPlans
    from trainwright.api.plan import answer_plan

    found = answer_plan(request)
    shown: Mapping[str, object] = {"figures": found.figures()}
    if isinstance(found, LowCommunicationPlans):
        shown = _island_parts(found)
    return {"command": render_command("plan", request), **found.to_dict(), **shown}


def _island_parts(found: "LowCommunicationPlans") -> Mapping[str, object]:
    """What the page shows of algorithms, and the figures of exact training if it fits."""
    from trainwright.report.plan_figures import plan_figures

    exact = found.ranked
    return {
        "beside": [_beside(each) for each in found],
        "island_figures": found.figures(),
        "figures": plan_figures(exact.summaries, exact.front, exact.what_if) if exact else (),
    }


def _beside(found: "ApartSummary") -> Mapping[str, object]:
    """What is shown of an algorithm with its numbers: the nearest measurement, and all of them in words."""
    from trainwright.report.island_tables import is_risky, island_lines
    from trainwright.report.islands import nearest_risk

    risk = nearest_risk(found.risks, found.islands, found.every)
    lines = [line.strip() for line in island_lines(found)]
    return {"name": found.name, "risk": risk, "risky": is_risky(found), "lines": lines}


def _simulate(request: "SimulateRequest") -> Mapping[str, object]:
    from trainwright.api.simulate import answer_simulate
    from trainwright.report.account_tables import account_lines
    from trainwright.report.blocks import blocks_of

    found = answer_simulate(request)
    return {
        "command": render_command("simulate", request), **found.to_dict(),
        "lines": tuple(account_lines(found.account)), "figures": found.figures(),
        "blocks": blocks_of(found.simulated.timeline),
    }  # fmt: skip


def _trace(request: "SimulateRequest") -> str:
    from trainwright.api.simulate import answer_simulate

    return answer_simulate(request).render_trace()


def _compare(request: "CompareRequest") -> Mapping[str, object]:
    from trainwright.api.compare import answer_compare

    return answer_compare(request).to_dict()


def _catalog(_: None) -> Mapping[str, object]:
    from trainwright.api.catalog import summarize_catalog

    return summarize_catalog()


KINDS: Mapping[str, Callable[[Any], Mapping[str, object] | str]] = {
    "plan": _plan,
    "simulate": _simulate,
    "trace": _trace,
    "compare": _compare,
    "catalog": _catalog,
}
