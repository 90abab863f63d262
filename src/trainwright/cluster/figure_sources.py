"""Where each figure of a device is from: its document, the document's date, and how sure it is."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from trainwright.errors import BadInput, UnknownName

Confidence = Literal["certain", "secondary", "derived", "unverified"]
CONFIDENCES: tuple[Confidence, ...] = get_args(Confidence)
SOURCE_KEYS = ("figures", "document", "date", "confidence", "note")
_PLAIN = ("compute_units", "buffer", "idle_power", "peak_power", "price_per_hour")
_OF_TIER = ("capacity", "usable_memory", "bandwidth", "latency", "update_bandwidth")
_DATE = re.compile(r"20\d\d(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?|20\d\d-20\d\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureSource:
    """What states a figure.

    `certain` is the vendor's documentation or repository, a price feed, or what independent logs of devices
    print; `secondary` a table that cites the vendor; `derived` a documented rule; `unverified` no document.
    """

    document: str
    date: str  # of the document; of an unverified figure, when a document was last looked for
    confidence: Confidence
    note: str = ""  # what other documents say


def stated_figures(table: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a device table as they are written: `buffer`, `peak.bf16`, `memory.hbm.capacity`."""
    figures = {key: table[key] for key in _PLAIN if key in table}
    figures |= {f"peak.{dtype}": value for dtype, value in table["peak"].items()}
    for tier in table["memory"]:
        figures |= {f"memory.{tier['name']}.{key}": tier[key] for key in _OF_TIER if key in tier}
    return figures


def build_figure_sources(table: Mapping[str, Any], thing: str) -> dict[str, FigureSource]:
    """The source of each figure that `sources` of a device table names; errors name `thing`.

    One source may state several figures; a figure has one source at most.
    """
    known, found = tuple(stated_figures(table)), dict[str, FigureSource]()
    listed = table.get("sources", [])
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise BadInput(f"{thing} sources", listed, "is not a list of tables", "write it as [[sources]]")
    for each in listed:
        source = _build_source(each, f"{thing} sources")
        for name in _figures(each, f"{thing} sources"):
            if name not in known:
                raise UnknownName(f"{thing} sources: figure", name, known)
            if name in found:
                raise BadInput(f"{thing} sources: figure", name, "has two sources", "leave one out")
            found[name] = source
    return {name: found[name] for name in known if name in found}


def _build_source(table: Mapping[str, Any], thing: str) -> FigureSource:
    for key in table:
        if key not in SOURCE_KEYS:
            raise UnknownName(f"{thing} key", key, SOURCE_KEYS)
    date, confidence = _text(table, "date", thing), _text(table, "confidence", thing)
    if not _DATE.fullmatch(date):
        raise BadInput(f"{thing} date", date, "is not a date", "write it like 2026-08-22, 2026-08 or 2026")
    if confidence not in CONFIDENCES:
        raise UnknownName(f"{thing} confidence", confidence, CONFIDENCES)
    return FigureSource(
        document=_text(table, "document", thing),
        date=date,
        confidence=confidence,
        note=_text(table, "note", thing) if "note" in table else "",
    )


def _text(table: Mapping[str, Any], key: str, thing: str) -> str:
    text = table.get(key)
    if not isinstance(text, str) or not text.strip():
        raise BadInput(f"{thing} {key}", text, "is not text", "state document, date and confidence")
    return text


def _figures(table: Mapping[str, Any], thing: str) -> list[str]:
    names = table.get("figures")
    if not isinstance(names, list) or not names or not all(isinstance(each, str) for each in names):
        raise BadInput(f"{thing} figures", names, "is not a list of figures", 'write it like ["peak.bf16"]')
    return names
