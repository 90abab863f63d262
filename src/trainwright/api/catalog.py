"""The answer to a request for what is known, and from where."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

from trainwright.algorithm.registry import ALGORITHMS, parse_algorithm, render_algorithm
from trainwright.api.device_entry import device_entry
from trainwright.api.requests import KINDS, CatalogRequest
from trainwright.api.result import Result, Rows
from trainwright.cluster.load import device_names, load_device, load_network, network_names
from trainwright.cost.load import load_constants
from trainwright.errors import BadInput, UnknownName
from trainwright.model.build import build_graph
from trainwright.model.graph import parameters
from trainwright.model.load import load_entry, model_names
from trainwright.model.totals import active_parameters
from trainwright.plan.islands import APART
from trainwright.stack.load import stack_entries, stack_name
from trainwright.study import STUDIES
from trainwright.units import render_bytes, render_si


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogKind:
    """One kind of entry: its names, the columns of its list, and a whole entry by name."""

    names: Callable[[], Sequence[str]]
    headers: Sequence[str]
    row: Callable[[str], Sequence[str]]
    entry: Callable[[str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntries(Result, schema="catalog/1"):
    """The names of each kind, the entries of one kind, or one entry: `found`."""

    request: CatalogRequest
    found: object

    def tree(self) -> Mapping[str, object]:
        """The names by kind, or the entries by the kind or name that was asked for."""
        found, request = self.found, self.request
        return found if isinstance(found, Mapping) else {request.name or request.kind or "": found}

    def rows(self) -> Rows:
        """What is listed of the kind that was asked for; of all kinds, their names."""
        kind = self.request.kind
        if kind is None:
            return [{"kind": each, "name": name} for each in KINDS for name in CATALOG[each].names()]
        names = [self.request.name] if self.request.name else CATALOG[kind].names()
        return [dict(zip(CATALOG[kind].headers, CATALOG[kind].row(name), strict=True)) for name in names]


def answer_catalog(request: CatalogRequest) -> CatalogEntries:
    """What is known, of the kind or the name that is asked for."""
    kind, name = request.kind, request.name
    if kind is None:
        if name is not None:
            raise BadInput("catalog name", name, "has no kind", f"state one of {', '.join(KINDS)}")
        found: object = {each: list(value.names()) for each, value in CATALOG.items()}
    elif kind not in CATALOG:
        raise UnknownName("kind", kind, KINDS)
    elif name is None:
        found = [CATALOG[kind].entry(each) for each in CATALOG[kind].names()]
    else:
        found = CATALOG[kind].entry(name)
    return CatalogEntries(request=request, found=found)


def summarize_catalog() -> Mapping[str, object]:
    """Names, with the few facts by which people choose."""
    listed: dict[str, list[dict[str, object]]] = {
        kind: [dict(zip(each.headers, each.row(name), strict=True)) for name in each.names()]
        for kind, each in CATALOG.items()
    }
    for kind, figures in (("devices", _device_figures), ("networks", _network_figures)):
        for entry in listed[kind]:
            entry.update(figures(str(entry["name"])))
    studies = [{"name": name, "about": about} for name, about in STUDIES.items()]
    return {**listed, "studies": studies, "algorithms": _algorithms()}


def _algorithms() -> list[dict[str, str]]:
    """Algorithms that `plan --algorithm` takes: what each does, and its usual hyperparameters."""

    listed = []
    for name in APART:
        about = import_module(ALGORITHMS[name].__module__).__doc__ or ""
        usual = render_algorithm(parse_algorithm(name)).removeprefix(name).strip()
        listed.append({"name": name, "about": about.partition("\n")[0], "hyperparameters": usual})
    return listed


def _device_row(name: str) -> Sequence[str]:
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
    device = load_device(name)
    return {
        "network": device.network, "flops_per_s": device.peak("bf16"),
        "memory_bytes": device.memory[0].usable_bytes, "memory_bytes_per_s": device.memory[0].bytes_per_s,
        "dollars_per_hour": device.price_per_hour,
    }  # fmt: skip


def _network_figures(name: str) -> Mapping[str, object]:
    """Bandwidth of its innermost level, and of the next."""
    inner, *outer = load_network(name).levels
    return {
        "inner_bytes_per_s": inner.bytes_per_s,
        "outer_bytes_per_s": outer[0].bytes_per_s if outer else inner.bytes_per_s,
    }


def _network_row(name: str) -> Sequence[str]:
    network = load_network(name)
    levels = [f"{level.size or '…'} x {render_si(level.bytes_per_s, 'B/s')}" for level in network.levels]
    return name, _short(network.source), " | ".join(levels)


def _model(name: str) -> object:
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
    entry = load_entry(name)
    architecture = entry.architecture
    count = f"{parameters(build_graph(architecture)) / 1e9:,.2f} B"
    sizes = (architecture.layers, architecture.hidden, architecture.max_seq)
    return name, _short(entry.source), count, *map(str, sizes)


def _stack(name: str) -> object:
    entry = stack_entries()[stack_name(name)]
    return {
        "name": entry.name,
        "aliases": entry.aliases,
        "description": entry.description,
        "source": entry.source,
        "constants": load_constants().stack(entry.name),
    }


def _stack_row(name: str) -> Sequence[str]:
    return name, stack_entries()[name].description


def _short(source: str) -> str:
    """The first clause of a source; an entry shown by itself has all of it."""
    return source.split(";")[0].split(":")[0]


CATALOG: Mapping[str, CatalogKind] = {
    "devices": CatalogKind(
        names=device_names, entry=device_entry, row=_device_row,
        headers=("name", "source", "bf16", "memory", "bandwidth", "power", "price"),
    ),
    "networks": CatalogKind(
        names=network_names, entry=load_network, row=_network_row, headers=("name", "source", "levels")
    ),
    "models": CatalogKind(
        names=model_names, entry=_model, row=_model_row,
        headers=("name", "source", "parameters", "layers", "hidden", "seq"),
    ),
    "stacks": CatalogKind(
        names=lambda: tuple(stack_entries()), entry=_stack, row=_stack_row, headers=("name", "description")
    ),
}  # fmt: skip
