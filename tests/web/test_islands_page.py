"""Sites and islands in a real browser: asked by keyboard, answered as in a terminal."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

SITES = {"model": "gpt2-xl", "device": "h100-sxm-80gb", "count": "8", "seq": "1024", "batch": "64"}


def answered(page: Any) -> None:
    page.wait_for_selector("#answer:not(.busy) #command, #answer:not(.busy) .error")


def press_on(page: Any, selector: str, *keys: str) -> None:
    """Go to an element as a keyboard does, and press."""
    page.locator(selector).focus()
    for key in keys:
        page.keyboard.press(key)


def cells(page: Any, what: str) -> list[str]:
    """The row of the table that begins with some words."""
    row = page.locator("#islands tbody tr", has=page.locator("td:first-child", has_text=what))
    return [str(each) for each in row.locator("td").all_inner_texts()]


def test_sites_and_algorithms_are_asked_by_keyboard_and_answered_as_by_the_command(
    page: Any, address: str, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from trainwright.cli.main import main

    page.goto(f"{address}/plan?{urlencode(SITES)}")
    answered(page)
    assert page.locator("#advice").count() == 0
    press_on(page, "summary:has-text('Several sites')", "Enter")
    page.keyboard.press("Tab")  # from the summary into what it opened
    page.keyboard.type("2")
    assert page.inner_text("#all-devices").endswith("16 in all")
    page.locator('input[name="link"]').fill("1 Gb/s")
    press_on(page, "summary:has-text('Training apart')", "Enter")
    press_on(page, "#use-diloco", "Space", "Tab")
    page.keyboard.type("every=50")
    press_on(page, "#use-ist", "Space", "Tab", "Enter")  # Enter asks, as in any field
    page.wait_for_selector("#advice")
    answered(page)

    command = page.inner_text("#command")
    assert "h100-sxm-80gb:8x2@1Gbps" in command
    assert "--algorithm 'diloco every=50,ist'" in command
    words = ["plan", "gpt2-xl", "h100:8x2@1Gbps", "--batch", "64", "--seq", "1024"]
    assert main([*words, "--algorithm", "diloco every=50,ist", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert page.inner_text("#advice p").startswith("Advice: ")
    assert page.locator("#advice p").all_inner_texts() == said["advice"]
    diloco = next(each for each in said["algorithms"] if each["name"] == "diloco")
    _, risk, step, sent, memory, cost, *_ = cells(page, "diloco")
    assert "%" in risk
    assert float(step.removesuffix(" s")) == pytest.approx(diloco["step_s"], rel=5e-3)
    assert sent == f"{diloco['sent_bytes_per_step'] / 1e6:.3g} MB"
    assert memory == f"{diloco['total_bytes'] / 2**30:.1f} GiB"
    assert cost == f"${diloco['budget']['dollars']:,.0f}"
    assert cells(page, "exact")[1] == "none"
    told = page.inner_text("#measured")
    for each in diloco["risks"]:  # every measurement, not the kindest
        assert f"{each['excess_loss']:+.1%}" in told
    page.screenshot(path=str(pictures / "islands.png"), full_page=True)

    shared = page.url
    page.goto("about:blank")
    page.set_viewport_size({"width": 400, "height": 900})
    page.goto(shared)  # the address alone reproduces it
    answered(page)
    assert page.inner_text("#command") == command
    assert page.locator("#use-ist").is_checked()
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    box = page.locator("#islands tbody tr:nth-child(2) td:nth-child(2)").bounding_box()
    assert box["x"] + box["width"] <= 400  # the risk is seen without scrolling sideways
    page.locator("#measured a").click()
    page.wait_for_url(f"{address}/subnetworks")


def test_what_is_wrong_with_sites_or_algorithms_is_shown(page: Any, address: str) -> None:
    wrong = {
        'link: "fast" is not written as it must be; write it like 10Gbps': {"link": "fast"},
        "use a multiple of 8 for each site": {"count": "12"},
        'did you mean "every"': {"algorithm": "diloco evry=5"},
    }
    for text, stated in wrong.items():
        question = {**SITES, "sites": "2", "link": "1Gbps", "algorithm": "diloco", **stated}
        page.goto(f"{address}/plan?{urlencode(question)}")
        page.wait_for_selector(".error")
        assert text in page.inner_text(".error")
        assert page.locator("details[open]").count() == 2  # what is wrong is not folded away


def test_islands_are_shown_where_exact_training_does_not_fit(page: Any, address: str) -> None:
    # whole copies of 6.7 B parameters are too large for a device; halves of heads and neurons are not
    question = {
        **SITES,
        "model": "gpt3-6.7b",
        "device": "h20",
        "sites": "2",
        "link": "1Gbps",
        "algorithm": "ist coverage=0",
        "seq": "2048",
    }
    page.goto(f"{address}/plan?{urlencode({**question, 'fix': 'zero=0 tp=1 pp=1 cp=1'})}")
    answered(page)
    assert page.locator("#no-exact").all_inner_texts() == ["Exact training does not fit this cluster."]
    assert "%" in cells(page, "ist")[1]
    assert not cells(page, "exact")
