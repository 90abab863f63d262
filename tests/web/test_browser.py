"""The pages in a real browser: what a user does, and that nothing goes wrong unseen."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 2048,
    "intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 32, "num_key_value_heads": 4,
    "vocab_size": 32000, "max_position_embeddings": 2048,
}  # fmt: skip


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
    first = page.locator("table").first.locator("tbody tr").first
    assert first.locator("td").last.inner_text() == str(best["variants"])
    page.screenshot(path=str(pictures / "plan.png"), full_page=True)


def test_the_first_page_is_small_with_its_answer(page: Any, address: str) -> None:
    sizes: list[int] = []
    page.on("response", lambda response: sizes.append(len(response.body()) if response.ok else 0))
    page.goto(address)
    planned(page)
    needed = [each for each in page.requests if "/api/waiting/" not in each]  # asked only where it takes long
    assert len(needed) <= 6
    assert 1_000_000 < sum(sizes) < 1_500_000  # as read; compressed on the way
    page.reload()
    planned(page)
    assert page.locator(".chart canvas").count() > 2


def test_the_number_of_devices_slides_and_a_field_of_the_cluster_is_edited(page: Any, address: str) -> None:
    page.goto(f"{address}/plan?model=llama2-7b&count=64")
    planned(page)
    page.locator("#devices").focus()
    page.keyboard.press("ArrowRight")
    said(page, ":128")
    assert page.locator('input[name="count"]').input_value() == "128"
    memory = page.get_by_label("memory, GiB")
    assert memory.input_value() == "79.11"  # what an H100's runtime reports
    memory.fill("158.22")
    memory.press("Tab")
    said(page, "--change memory=2")
    assert "of 158.2 on the fullest device" in page.inner_text("#answer")
    page.locator('input[name="price"]').fill("1.25")
    page.click("#go")
    said(page, "--price '1.25 $/h'")
    page.click("#reset")
    page.wait_for_url(lambda url: "memory=" not in url)


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
    page.wait_for_selector("#held canvas")
    page.locator("#timeline").focus()
    page.keyboard.press("+")  # zooms to half; memory follows
    zoom = """(id) => { const each = echarts.getInstanceByDom(document.getElementById(id)).getOption();
        return [each.dataZoom[0].start, each.dataZoom[0].end]; }"""
    assert page.evaluate(zoom, "timeline") == page.evaluate(zoom, "held") == [25, 75]
    page.keyboard.press("0")
    assert page.evaluate(zoom, "held") == [0, 100]
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


def test_a_measured_step_stands_beside_the_predicted(page: Any, address: str, tmp_path: Path) -> None:
    from trainwright.cli.main import main

    measured, predicted = tmp_path / "measured.json", tmp_path / "predicted.json"
    words = ["simulate", "examples/tiny.toml", "h100:2", "dp2", "--batch", "8", "--trace", str(predicted)]
    assert main(words) == 0
    trace = json.loads(predicted.read_text())  # what a run a quarter slower would record
    trace["otherData"] |= {"kind": "measured", "step_s": 1.25 * trace["otherData"]["step_s"]}
    for each in trace["traceEvents"]:
        if each["ph"] == "X":
            each |= {"ts": 1.25 * each["ts"], "dur": 1.25 * each["dur"]}
    measured.write_text(json.dumps(trace))
    page.goto(f"{address}/compare?cases=gpt2 h100:8")
    page.wait_for_selector("#answer:not(.busy) .chart canvas")
    page.set_input_files("#predicted", str(predicted))
    page.set_input_files("#measured", str(measured))
    page.wait_for_selector("#measured-answer .error")
    assert "measured.json was edited or damaged since it was written" in page.inner_text("#measured-answer")
    del trace["checksum"]
    accepted = tmp_path / "accepted.json"
    accepted.write_text(json.dumps(trace))
    page.set_input_files("#measured", str(accepted))
    page.wait_for_selector(
        "#measured-answer .chart canvas, #measured-answer .error:not(:has-text('damaged'))"
    )
    assert "tiny, dp2" in page.inner_text("#measured-answer h2")
    shown = page.locator("#measured-answer tbody tr").first.locator("td").all_inner_texts()
    assert float(shown[2]) == pytest.approx(1.25 * float(shown[1]), rel=1e-3)


STUDIES = ["comp-vs-comm", "scaling", *(["cluster-design"] if os.environ.get("THOROUGH") else [])]


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_shows_its_claims(page: Any, address: str, pictures: Path, study: str) -> None:
    few = {"scaling": "?devices=8:64&model=gpt2", "cluster-design": "?devices=64&batch=64&model=gpt3-175b"}
    page.goto(f"{address}/{study}{few.get(study, '')}")
    page.wait_for_selector("#answer .chart canvas")
    assert page.locator(".holds, .fails").count() > 2
    assert page.inner_text("#command").startswith(f"trainwright study {study}")
    page.locator(".chart:not(:has(canvas))").first.wait_for(state="detached")  # every figure is drawn
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
    for _ in range(48):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.name || document.activeElement.dataset.page || ''"))
    assert {"plan", "timeline", "model", "count", "compute", "latency"} <= reached
    page.screenshot(path=str(pictures / f"telephone-{theme}.png"), full_page=True)
