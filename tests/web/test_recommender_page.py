"""A recommender in a real browser: its shardings and instances are the command's."""

import json
from typing import Any

import pytest


def test_a_recommender_is_planned_as_by_the_command_in_samples(
    page: Any, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from trainwright.cli.main import main

    page.goto(f"{address}/plan?model=dlrm-1.2t&device=h100-sxm-80gb&count=128")
    page.wait_for_selector("#answer:not(.busy) .fact")
    assert page.inner_text("#command") == "trainwright plan dlrm-1.2t h100-sxm-80gb:128 --top 20"
    assert main(["plan", "dlrm-1.2t", "h100:128", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    best = max(said["instances"], key=lambda each: float(each["samples_per_s"]))
    assert (best["instances"], best["devices"]) == (2, 64)  # on 32, 79.2 GiB of 79.1
    facts = page.inner_text(".facts")
    assert f"2 instances of {best['devices']} devices" in facts
    assert f"tables={best['sharding']['tables']} rows={best['sharding']['rows']}" in facts
    assert f"{best['samples_per_s'] / 1e6:.3g} M samples/s" in facts
    assert f"{best['total_bytes'] / 2**30:.1f} GiB" in facts
    assert "token" not in page.inner_text("#answer")
    page.wait_for_selector(".chart canvas")


def test_the_page_that_compares_tokens_refuses_a_recommender(page: Any, address: str) -> None:
    page.goto(f"{address}/compare?cases=gpt2 h100:8%0Adlrm-1.2t h100:64")
    page.wait_for_selector("#answer:not(.busy) .chart canvas")
    assert "learns from samples, not tokens" in page.inner_text(".error")
