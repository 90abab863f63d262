"""`trainwright catalog`: what is known, and from where."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

KINDS = ("devices", "networks", "models", "stacks")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of entry: its names, the columns of its list, and a whole entry by name."""

    names: Callable[[], Sequence[str]]
    headers: Sequence[str]
    row: Callable[[str], Sequence[str]]
    entry: Callable[[str], object]
    show: Callable[[str], None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("kind", nargs="?", metavar="KIND", help="devices, networks, models or stacks")
    shown = "show one entry in full; of a device with the document of each figure"
    parser.add_argument("name", nargs="?", metavar="NAME", help=shown)
    parser.add_argument("--json", action="store_true", help="JSON on standard output")


def run(options: argparse.Namespace) -> int:
    """List the kinds, the entries of one kind, or show one entry."""
    from trainwright.errors import UnknownName
    from trainwright.report.files import render_json

    kinds = _kinds()
    if options.kind is not None and options.kind not in kinds:
        raise UnknownName("kind", options.kind, KINDS)
    if options.json:
        print(render_json(_tree(kinds, options.kind, options.name)), end="")
    elif options.name:
        kinds[options.kind].show(options.name)
    else:
        for kind in [options.kind] if options.kind else KINDS:
            _show_list(kind, kinds[kind], whole=bool(options.kind))
    return 0


def summary_of() -> Mapping[str, object]:
    """Names, with the few facts by which people choose."""
    from trainwright.study import STUDIES

    kinds = _kinds()
    listed: dict[str, list[dict[str, object]]] = {
        kind: [dict(zip(each.headers, each.row(name), strict=True)) for name in each.names()]
        for kind, each in kinds.items()
    }
    for kind, figures in (("devices", _device_figures), ("networks", _network_figures)):
        for entry in listed[kind]:
            entry.update(figures(str(entry["name"])))
    studies = [{"name": name, "about": about} for name, about in STUDIES.items()]
    return {**listed, "studies": studies, "algorithms": _algorithms()}


def _algorithms() -> list[dict[str, str]]:
    """Algorithms that `plan --algorithm` takes: what each does, and its usual hyperparameters."""
    from importlib import import_module

    from trainwright.algorithm.registry import ALGORITHMS, parse_algorithm, render_algorithm
    from trainwright.plan.islands import APART

    listed = []
    for name in APART:
        about = import_module(ALGORITHMS[name].__module__).__doc__ or ""
        usual = render_algorithm(parse_algorithm(name)).removeprefix(name).strip()
        listed.append({"name": name, "about": about.partition("\n")[0], "hyperparameters": usual})
    return listed


def _tree(kinds: Mapping[str, Kind], kind: str | None, name: str | None) -> object:
    if kind is None:
        return {each: list(value.names()) for each, value in kinds.items()}
    if name is None:
        return [kinds[kind].entry(each) for each in kinds[kind].names()]
    return kinds[kind].entry(name)


def _show_list(title: str, kind: Kind, *, whole: bool) -> None:
    from trainwright.report import tables

    console = tables.open_console()
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


def _short(source: str) -> str:
    """The first clause of a source; an entry shown by itself has all of it."""
    return source.split(";")[0].split(":")[0]


def _kinds() -> Mapping[str, Kind]:
    from trainwright.cli.device_entry import device_entry, show_device
    from trainwright.cluster.load import device_names, network_names
    from trainwright.model.load import model_names
    from trainwright.stack.load import stack_entries

    return {
        "devices": Kind(
            names=device_names, entry=device_entry, row=_device_row, show=show_device,
            headers=("name", "source", "bf16", "memory", "bandwidth", "power", "price"),
        ),
        "networks": Kind(
            names=network_names, entry=_network, row=_network_row,
            show=lambda name: _show_entry(_network(name)), headers=("name", "source", "levels"),
        ),
        "models": Kind(
            names=model_names, entry=_model, row=_model_row, show=lambda name: _show_entry(_model(name)),
            headers=("name", "source", "parameters", "layers", "hidden", "seq"),
        ),
        "stacks": Kind(
            names=lambda: tuple(stack_entries()), entry=_stack, row=_stack_row,
            show=lambda name: _show_entry(_stack(name)),
            headers=("name", "description"),
        ),
    }  # fmt: skip


def _device_row(name: str) -> Sequence[str]:
    from trainwright.cluster.load import load_device
    from trainwright.units import render_bytes, render_si

    device = load_device(name)
    memory = device.memory[0]
    return (
        name,
        _short(device.source),
        render_si(device.peak("bf16"), "FLOP/s"),
        render_bytes(memory.usable_bytes),
        render_si(memory.bytes_per_s, "B/s"),
        render_si(device.peak_w, "W"),
        f"{device.price_per_hour:g} $/h",
    )


def _device_figures(name: str) -> Mapping[str, object]:
    """What can be changed of it, in base units, and the network that it comes with."""
    from trainwright.cluster.load import load_device

    device = load_device(name)
    return {
        "network": device.network, "flops_per_s": device.peak("bf16"),
        "memory_bytes": device.memory[0].usable_bytes, "memory_bytes_per_s": device.memory[0].bytes_per_s,
        "dollars_per_hour": device.price_per_hour,
    }  # fmt: skip


def _network_figures(name: str) -> Mapping[str, object]:
    """Bandwidth of its innermost level, and of the next."""
    from trainwright.cluster.load import load_network

    inner, *outer = load_network(name).levels
    return {
        "inner_bytes_per_s": inner.bytes_per_s,
        "outer_bytes_per_s": outer[0].bytes_per_s if outer else inner.bytes_per_s,
    }


def _network(name: str) -> object:
    from trainwright.cluster.load import load_network

    return load_network(name)


def _network_row(name: str) -> Sequence[str]:
    from trainwright.cluster.load import load_network
    from trainwright.units import render_si

    network = load_network(name)
    levels = [f"{level.size or '…'} x {render_si(level.bytes_per_s, 'B/s')}" for level in network.levels]
    return name, _short(network.source), " | ".join(levels)


def _model(name: str) -> object:
    from trainwright.model.build import build_graph
    from trainwright.model.graph import parameters
    from trainwright.model.load import load_entry
    from trainwright.model.totals import active_parameters

    entry = load_entry(name)
    return {
        "name": entry.architecture.name,
        "parameters": parameters(build_graph(entry.architecture)),
        "active_parameters": round(active_parameters(build_graph(entry.architecture))),
        "published_parameters": entry.published_parameters,
        "aliases": entry.aliases,
        "source": entry.source,
        "architecture": entry.architecture,
    }


def _model_row(name: str) -> Sequence[str]:
    from trainwright.model.build import build_graph
    from trainwright.model.graph import parameters
    from trainwright.model.load import load_entry

    entry = load_entry(name)
    architecture = entry.architecture
    count = f"{parameters(build_graph(architecture)) / 1e9:,.2f} B"
    sizes = (architecture.layers, architecture.hidden, architecture.max_seq)
    return name, _short(entry.source), count, *map(str, sizes)


def _stack(name: str) -> object:
    from trainwright.cost.load import load_constants
    from trainwright.stack.load import stack_entries, stack_name

    entry = stack_entries()[stack_name(name)]
    return {
        "name": entry.name,
        "aliases": entry.aliases,
        "description": entry.description,
        "source": entry.source,
        "constants": load_constants().stack(entry.name),
    }


def _stack_row(name: str) -> Sequence[str]:
    from trainwright.stack.load import stack_entries

    return name, stack_entries()[name].description
