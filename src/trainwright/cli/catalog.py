"""`trainwright catalog`: what is known, and from where."""

import argparse
from collections.abc import Mapping

from trainwright.api.requests import KINDS, CatalogRequest
from trainwright.cli.request_options import add_fields, read_request


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_fields(parser, CatalogRequest)
    parser.add_argument("--json", action="store_true", help="JSON on standard output")


def run(options: argparse.Namespace) -> int:
    """List the kinds, the entries of one kind, or show one entry."""
    from trainwright.api.catalog import answer_catalog
    from trainwright.report.files import render_json

    found = answer_catalog(read_request(options, CatalogRequest))
    if options.json:
        print(render_json(found.found), end="")
    elif options.name and options.kind == "devices":
        _show_device(options.name)
    elif options.name:
        _show_entry(found.found)
    else:
        for kind in [options.kind] if options.kind else KINDS:
            _show_list(kind, whole=bool(options.kind))
    return 0


def _show_list(title: str, *, whole: bool) -> None:
    from trainwright.api.catalog import CATALOG
    from trainwright.report import tables

    console = tables.open_console()
    kind = CATALOG[title]
    names = kind.names()
    if whole:
        tables.show(console, tables.table(title, kind.headers, [kind.row(name) for name in names], left=2))
    else:
        listed = tables.indented(console, ", ".join(names))
        tables.show(console, f"{title} ({len(names)})", listed, "")


def _show_entry(entry: object) -> None:
    from trainwright.report import tables

    console = tables.open_console()
    tables.show(console, tables.table("", ["field", "value"], list(_lines(entry)), left=2))


def _show_device(name: str) -> None:
    """Print what the device is, its figures, and the documents that state them."""
    from trainwright.cluster.load import load_device, load_figure_sources, load_figures
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


def _lines(entry: object, prefix: str = "") -> list[tuple[str, str]]:
    """Fields of an entry as text; nested values are named by their path, defaults of zero left out."""
    names = getattr(entry, "__dataclass_fields__", {})
    values = entry if isinstance(entry, Mapping) else {name: getattr(entry, name) for name in names}
    lines: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping) or hasattr(value, "__dataclass_fields__"):
            lines += _lines(value, f"{prefix}{name}.")
        elif isinstance(value, tuple) and value and hasattr(value[0], "__dataclass_fields__"):
            for each in value:
                lines += _lines(each, f"{prefix}{name}.{getattr(each, 'name', '')}.")
        elif value not in (0, "", (), None, False):
            lines.append((prefix + name, _text(name, value)))
    return lines


def _text(name: str, value: object) -> str:
    """A value with its unit, which its name tells."""
    from trainwright.units import render_bytes, render_duration, render_si

    if isinstance(value, bool):
        return "yes"
    number = float(value) if isinstance(value, (int, float)) else 0.0
    if name.endswith("bytes_per_s"):
        return render_si(number, "B/s")
    if name in ("fp32", "tf32", "bf16", "fp16", "fp8", "fp4"):
        return render_si(number, "FLOP/s")
    if name.endswith("_bytes") and number >= 1024:
        return render_bytes(number)
    if name.endswith("_s") and isinstance(value, float):
        return render_duration(number)
    if name.endswith("_w"):
        return render_si(number, "W")
    if name == "price_per_hour":
        return f"{number:g} $/h"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else str(value)
