"""A device of the catalog with the document, date and confidence of each of its figures."""

from collections.abc import Mapping

from trainwright.cluster.load import load_device, load_figure_sources, load_figures


def device_entry(name: str) -> Mapping[str, object]:
    """The device for JSON: its fields, nominal and usable bytes of its memory, and sources by figure."""
    device = load_device(name)
    fields = {field: getattr(device, field) for field in device.__dataclass_fields__}
    tiers = [
        {field: getattr(tier, field) for field in tier.__dataclass_fields__}
        | {"usable_bytes": tier.usable_bytes}
        for tier in device.memory
    ]
    return fields | {"memory": tiers, "sources": load_figure_sources(name)}


def show_device(name: str) -> None:
    """Print what the device is, its figures, and the documents that state them."""
    from trainwright.report import tables
    from trainwright.units import render_bytes

    device, figures, sources = load_device(name), load_figures(name), load_figure_sources(name)
    own = device.memory[0]
    memory = f"{render_bytes(own.usable_bytes)} usable of nominal {render_bytes(own.capacity_bytes)}"
    facts = [
        ("name", device.name), ("family", device.family), ("network", device.network), ("memory", memory),
        ("source", device.source),
    ]  # fmt: skip
    listed = list(dict.fromkeys((each.document, each.note) for each in sources.values()))
    rows = [
        [figure, str(value), each.confidence, each.date, f"[{listed.index((each.document, each.note)) + 1}]"]
        for figure, value in figures.items()
        if (each := sources[figure])
    ]
    documents = [
        f"[{at}] {document}" + (f"; {note}" if note else "") for at, (document, note) in enumerate(listed, 1)
    ]
    console = tables.open_console()
    headers = ["figure", "value", "confidence", "date", "document"]
    tables.show(
        console, tables.table("", ["field", "value"], facts, left=2),
        tables.table("Figures", headers, rows, left=5), *documents,
    )  # fmt: skip
