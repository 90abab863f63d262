"""The pages in a real browser: what a user does, and that nothing goes wrong unseen."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.web.conftest import WAIT_MS

CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 2048,
    "intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 32, "num_key_value_heads": 4,
    "vocab_size": 32000, "max_position_embeddings": 2048,
}  # fmt: skip


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """A page that must stay without errors, and ask nobody but the server."""
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    opened = context.new_page()
    opened.set_default_timeout(WAIT_MS)
    errors: list[str] = []
    opened.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: errors.append(str(error)))
    requests: list[str] = []
    opened.on("request", lambda request: requests.append(request.url))
    opened.requests = requests
    yield opened
    context.close()
    refused = [each for each in errors if "status of 4" not in each]  # what the server refuses is shown
    assert not refused
    assert all(each.startswith((address, "data:", "blob:")) for each in requests)


def fact(page: Any, what: str) -> str:
    """The figure above some words."""
    return str(page.locator(".fact", has_text=what).locator("b").inner_text())


def said(page: Any, part: str) -> None:
    """Wait until the command has a part."""
    page.locator("#command", has_text=part).wait_for()


def planned(page: Any) -> None:
    page.wait_for_selector("#answer:not(.busy) .fact")


def test_a_catalog_model_is_planned_and_its_numbers_are_the_commands(
    page: Any, address: str, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from trainwright.cli.main import main

    page.goto(f"{address}/plan?model=llama2-7b&device=h100-sxm-80gb&count=64")
    planned(page)
    command = page.inner_text("#command")
    assert command == "trainwright plan llama2-7b h100-sxm-80gb:64 --top 20"
    assert main([*command.split()[1:], "--json"]) == 0
    best = json.loads(capsys.readouterr().out)["plans"][0]
    assert fact(page, "the best strategy") == best["strategy"]["text"]
    assert fact(page, "MFU") == f"{100 * best['mfu']:.1f} %"
    page.screenshot(path=str(pictures / "plan.png"), full_page=True)


def test_the_first_page_is_small(page: Any, address: str) -> None:
    sizes: list[int] = []
    page.on("response", lambda response: sizes.append(len(response.body()) if response.ok else 0))
    page.goto(f"{address}/api")
    page.wait_for_selector("h2")
    assert len(page.requests) <= 6
    assert sum(sizes) < 1_500_000


def test_a_slider_changes_the_answer_and_the_address(page: Any, address: str) -> None:
    page.goto(f"{address}/plan?model=llama2-7b&count=64")
    planned(page)
    before = fact(page, "a step")
    slider = page.locator('input[type="range"][name="compute"]')
    slider.focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.wait_for_url("**compute=2*")
    said(page, "compute=2")
    assert fact(page, "a step") != before
    shared = page.url
    page.goto("about:blank")
    page.goto(shared)  # the address alone reproduces it
    planned(page)
    assert "compute=2" in page.inner_text("#command")


def test_an_uploaded_configuration_is_planned_and_its_address_carries_it(
    page: Any, address: str, tmp_path: Path
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIG))
    page.goto(f"{address}/plan?model=gpt2&count=8")
    planned(page)
    page.set_input_files("#upload", str(file))
    said(page, "config.json")
    assert "1.1 B parameters" in page.inner_text("#answer")
    shared = page.url
    page.goto("about:blank")
    page.goto(shared)
    planned(page)
    assert "1.1 B parameters" in page.inner_text("#answer")
    file.write_text("{not json")
    page.set_input_files("#upload", str(file))
    page.wait_for_selector(".error")
    assert "is not JSON" in page.inner_text(".error")


def test_the_table_sorts_filters_and_leads_to_the_timeline(page: Any, address: str, pictures: Path) -> None:
    page.goto(f"{address}/plan?model=gpt3-13b&count=32&batch=64&fix=pp%3D4")
    planned(page)
    rows = page.locator("section table").first.locator("tbody tr")
    many = rows.count()
    page.get_by_label("Filter").first.fill("tp2")
    assert 0 < rows.count() < many
    page.get_by_label("Filter").first.fill("")
    page.locator("th button", has_text="memory").click()
    sizes = [
        float(each.split()[0])
        for each in page.locator("section table").first.locator("tbody tr td:nth-child(7)").all_inner_texts()
    ]
    assert sizes == sorted(sizes)
    page.locator("td .plain").first.click()
    page.wait_for_selector("#timeline canvas")
    assert "/timeline?" in page.url
    with page.expect_download() as download:
        page.click("#trace")
    trace = json.loads(Path(download.value.path()).read_text())
    assert {each["ph"] for each in trace["traceEvents"]} >= {"X", "M", "C"}
    page.screenshot(path=str(pictures / "timeline.png"), full_page=True)


def test_a_sweep_is_cancelled_and_another_is_drawn(page: Any, address: str, pictures: Path) -> None:
    page.goto(f"{address}/sweep")
    page.fill(
        "textarea", 'model = "llama3-405b"\ncluster = "h100:1024"\n[[axis]]\nfield = "cluster.count"\n'
        f"values = {list(range(1024, 9000, 8))}\n",
    )  # fmt: skip
    page.click("#go")
    page.wait_for_selector("#cancel")
    page.click("#cancel")
    page.wait_for_selector("#cancelled")
    small = 'model = "gpt2"\ncluster = "h100:8"\n[[axis]]\nfield = "cluster.count"\nvalues = [1, 2, 4, 8]\n'
    page.fill("textarea", small)
    page.click("#go")
    page.wait_for_selector(".chart canvas")
    assert "4 points" in page.inner_text("#answer")
    page.screenshot(path=str(pictures / "sweep.png"), full_page=True)


def test_clusters_stand_side_by_side(page: Any, address: str, pictures: Path) -> None:
    cases = "gpt2 h100:8%0Agpt2 a100-80gb:8%0Agpt2 nothing:8"
    page.goto(f"{address}/compare?cases={cases}")
    page.wait_for_selector("#answer:not(.busy) .chart canvas")
    assert page.locator("#answer section table tbody tr").count() == 2
    assert "nothing" in page.inner_text(".error")
    page.screenshot(path=str(pictures / "compare.png"), full_page=True)


@pytest.mark.parametrize("study", ["comp-vs-comm", "scaling"])
def test_a_study_shows_its_claims(page: Any, address: str, pictures: Path, study: str) -> None:
    few = "?devices=8:64&model=gpt2" if study == "scaling" else ""
    page.goto(f"{address}/{study}{few}")
    page.wait_for_selector("#answer .chart canvas")
    assert page.locator(".holds, .fails").count() > 2
    assert page.inner_text("#command").startswith(f"trainwright study {study}")
    page.screenshot(path=str(pictures / f"{study}.png"), full_page=True)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_works_on_a_telephone_by_keyboard_in_light_and_dark(
    page: Any, address: str, pictures: Path, theme: str
) -> None:
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": 400, "height": 900})
    page.goto(f"{address}/plan?model=gpt2&count=8")
    planned(page)
    assert page.evaluate("document.documentElement.dataset.theme") == theme
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.name || document.activeElement.dataset.page || ''"))
    assert {"plan", "timeline", "model", "count", "compute", "latency"} <= reached
    page.screenshot(path=str(pictures / f"telephone-{theme}.png"), full_page=True)
