"""Every figure of every device has a document, a date and a confidence, and bad sources are refused."""

from statistics import median
from typing import Any

import pytest

from trainwright.cluster.entry import build_device
from trainwright.cluster.figure_sources import CONFIDENCES, build_figure_sources
from trainwright.cluster.load import device_names, load_device, load_figure_sources, load_figures
from trainwright.errors import BadInput, UnknownName

NVIDIA = ("volta", "turing", "ampere", "hopper", "ada", "blackwell", "blackwell-rtx", "rubin")
GIB = 2.0**30


def device_table(**changes: Any) -> dict[str, Any]:
    memory = [
        {"name": "hbm", "capacity": "80 GiB", "usable_memory": "79 GiB", "bandwidth": "3 TB/s"},
        {"name": "host", "capacity": "256 GB", "bandwidth": "64 GB/s"},
    ]
    table: dict[str, Any] = {
        "name": "d", "family": "f", "compute_units": 100, "buffer": "50 MiB", "idle_power": "70 W",
        "peak_power": "700 W", "price_per_hour": "2 $/h", "network": "dgx-h100", "source": "s",
        "peak": {"bf16": "989 TFLOP/s"}, "memory": memory,
    }  # fmt: skip
    return table | changes


def source(*figures: str, **changes: Any) -> dict[str, Any]:
    named = {"figures": list(figures), "document": "datasheet", "date": "2026-08", "confidence": "certain"}
    return named | changes


@pytest.mark.parametrize("name", device_names())
class TestCatalog:
    def test_every_figure_has_document_date_and_confidence(self, name: str) -> None:
        sources = load_figure_sources(name)
        assert sorted(set(load_figures(name)) - set(sources)) == []
        assert all(each.document and each.date and each.confidence for each in sources.values())

    def test_it_states_what_its_runtime_reports(self, name: str) -> None:
        own = load_device(name).memory[0]
        assert f"memory.{own.name}.usable_memory" in load_figures(name)
        assert 0.9 * own.capacity_bytes < own.usable_bytes < 1.01 * own.capacity_bytes

    def test_a_figure_without_a_document_is_unverified(self, name: str) -> None:
        for each in load_figure_sources(name).values():
            assert ("no document" in each.document) <= (each.confidence == "unverified")


def usable_sources() -> dict[str, str]:
    """The confidence of each device's usable memory."""
    found = {}
    for name in device_names():
        own = load_device(name).memory[0].name
        found[name] = load_figure_sources(name)[f"memory.{own}.usable_memory"].confidence
    return found


def kind_of(name: str) -> tuple[str, ...]:
    """Devices whose runtimes report alike: by vendor; of NVIDIA also by kind of memory, 288 GB apart."""
    device = load_device(name)
    if device.family in NVIDIA:
        large = device.memory[0].capacity_bytes >= 288 * GIB
        return "nvidia", device.memory[0].name, "288 GB" if large else "less"
    return ("amd",) if device.family.startswith("cdna") else (device.family,)


def test_derived_usable_memory_is_the_median_share_of_documented_devices() -> None:
    confidences = usable_sources()
    derived = [name for name, confidence in confidences.items() if confidence == "derived"]
    assert {"a30", "vr200-rubin", "mi455x", "tpu-v3"} <= set(derived)
    for name in derived:
        documented = [
            load_device(each).memory[0].usable_fraction or 0.0
            for each, confidence in confidences.items()
            if confidence in ("certain", "secondary") and kind_of(each) == kind_of(name)
        ]
        assert len(documented) >= 2
        own = load_device(name).memory[0]
        assert own.usable_bytes == pytest.approx(own.capacity_bytes * median(documented), abs=0.01 * GIB)


@pytest.mark.parametrize(
    ("name", "nominal_gib", "usable_gib"),
    [
        ("h100", 80, 79.11),
        ("a100", 80, 79.15),
        ("b200", 180, 178.35),
        ("b300", 288, 267.69),
        ("gb300", 288, 276.5),
        ("l40s", 48, 44.39),
        ("rtx-4090", 24, 23.52),
        ("mi300x", 192, 191.69),
        ("tpu-v4", 32, 30.75),
        ("tpu-v5p", 95, 95.74),
    ],
)
def test_usable_memory_is_what_public_logs_print(name: str, nominal_gib: float, usable_gib: float) -> None:
    own = load_device(name).memory[0]
    assert own.capacity_bytes == nominal_gib * GIB
    assert own.usable_bytes == pytest.approx(usable_gib * GIB)


@pytest.mark.parametrize(
    ("alias", "name"),
    [("a10", "a10"), ("a10g", "a10g"), ("mi250", "mi250"), ("mi250x", "mi250x"), ("vr200", "vr200-rubin")],
)
def test_a_card_is_not_an_alias_of_another(alias: str, name: str) -> None:
    assert load_device(alias).name == name


def test_figures_of_one_source_share_it() -> None:
    table = device_table(sources=[source("peak.bf16", "memory.hbm.usable_memory", note="79.1 elsewhere")])
    sources = build_figure_sources(table, "device d")
    assert list(sources) == ["peak.bf16", "memory.hbm.usable_memory"]
    assert sources["peak.bf16"] is sources["memory.hbm.usable_memory"]
    assert sources["peak.bf16"].note == "79.1 elsewhere"
    assert build_device(table, "device d").memory[0].usable_bytes == pytest.approx(79 * GIB)


@pytest.mark.parametrize(
    ("sources", "error", "words"),
    [
        ({"buffer": {}}, BadInput, "is not a list of tables"),
        ([source("peak.fp64")], UnknownName, 'figure "peak.fp64"'),
        ([source("buffer"), source("buffer")], BadInput, "has two sources"),
        ([source()], BadInput, "is not a list of figures"),
        ([source("buffer", figures="buffer")], BadInput, "is not a list of figures"),
        ([source("buffer", document="")], BadInput, "sources document"),
        ([source("buffer", date=2026)], BadInput, "sources date"),
        ([source("buffer", date="May 2026")], BadInput, "is not a date"),
        ([source("buffer", date="2026-13")], BadInput, "is not a date"),
        ([source("buffer", confidence="sure")], UnknownName, 'confidence "sure"'),
        ([source("buffer", page="3")], UnknownName, 'key "page"'),
        ([source("buffer", note=3)], BadInput, "sources note"),
    ],
)
def test_a_bad_source_is_refused(sources: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        build_device(device_table(sources=sources), "device d")


@pytest.mark.parametrize("missing", ["document", "date", "confidence"])
def test_a_source_needs_document_date_and_confidence(missing: str) -> None:
    incomplete = {key: value for key, value in source("buffer").items() if key != missing}
    with pytest.raises(BadInput, match=f"sources {missing}.*state document, date and confidence"):
        build_device(device_table(sources=[incomplete]), "device d")


def test_confidences_are_ordered_from_sure_to_unsure() -> None:
    assert CONFIDENCES == ("certain", "secondary", "derived", "unverified")


@pytest.mark.parametrize(
    ("own", "host", "words"),
    [
        ({"usable_memory": "90 GiB"}, {}, "is more than the capacity 80 GiB; state what the runtime reports"),
        ({"usable_memory": "79"}, {}, "has no unit"),
        ({"usable_memory": "0 GiB"}, {}, "is zero"),
        ({}, {"usable_memory": "200 GB"}, "is for the first tier"),
    ],
)
def test_bad_usable_memory_is_refused(own: dict[str, str], host: dict[str, str], words: str) -> None:
    first, second = device_table()["memory"]
    with pytest.raises(BadInput, match=words):
        build_device(device_table(memory=[first | own, second | host]), "device d")
