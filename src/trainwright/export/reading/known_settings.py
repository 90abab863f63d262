"""What is known about the settings of other tools: which are read, which have no effect, which matter."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_TABLES = Path(__file__).parents[2] / "catalog" / "settings"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSettings:
    """Names by class: `understood`, `harmless`, `matters`, and `refused` ones by what they change."""

    understood: tuple[str, ...]
    harmless: tuple[str, ...]
    matters: tuple[str, ...]
    refused: Mapping[str, tuple[str, ...]]

    def class_of(self, name: str) -> str:
        """The class of a name, `unknown` if it is in none; a whole name goes before a pattern."""
        lists = self._lists()
        for kind, names in lists.items():
            if name in names:
                return kind
        for kind, names in lists.items():
            if any(each.endswith("*") and name.startswith(each[:-1]) for each in names):
                return kind
        return "unknown"

    def is_harmless(self, name: str) -> bool:
        """Whether a setting has no effect on a prediction."""
        return self.class_of(name) == "harmless"

    def _lists(self) -> dict[str, tuple[str, ...]]:
        first = {"understood": self.understood, "harmless": self.harmless, "matters": self.matters}
        return first | dict(self.refused)


def load_table(name: str) -> dict[str, Any]:
    """A table of facts about settings."""
    return tomllib.loads((_TABLES / f"{name}.toml").read_text(encoding="utf-8"))


@cache
def load_known(name: str) -> KnownSettings:
    """What is known about one tool's settings."""
    table = load_table(name)
    return KnownSettings(
        understood=tuple(table["understood"]), harmless=tuple(table["harmless"]),
        matters=tuple(table["matters"]),
        refused={kind: tuple(names) for kind, names in table.get("refused", {}).items()},
    )  # fmt: skip


def not_considered(known: KnownSettings, names: Iterable[str], dashes: str = "") -> Iterator[str]:
    """What to say of settings that matter and are not predicted, and of unknown ones."""
    kinds = {name: known.class_of(name) for name in names}
    matters = [f"{dashes}{name}" for name, kind in kinds.items() if kind == "matters"]
    unknown = [f"{dashes}{name}" for name, kind in kinds.items() if kind == "unknown"]
    if matters:
        yield f"Not considered, and it matters: {', '.join(matters)}."
    if unknown:
        yield f"Not known, and not considered: {', '.join(unknown)}."


def optimizer_note(name: str) -> Iterator[str]:
    """What to say of an optimizer that is not Adam, as which it is predicted."""
    table = load_table("optimizers")
    key = "".join(each for each in name.lower() if each.isalnum())
    if not key or key in table["adam"]:
        return
    what = table["others"].get(key, "is not known")
    yield f"Not considered, and it matters: optimizer {name}, which {what}; it is predicted as Adam."
