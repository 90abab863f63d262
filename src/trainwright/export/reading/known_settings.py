"""What is known about the settings of other tools: which are read, which have no effect, which matter."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from trainwright.stack.load import capability_of

_TABLES = Path(__file__).parents[2] / "catalog" / "settings"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSettings:
    """Names by class: `understood`, `harmless`, `matters`, and `refused` ones by what they change."""

    understood: tuple[str, ...]
    harmless: tuple[str, ...]
    matters: tuple[str, ...]
    refused: Mapping[str, tuple[str, ...]]
    usual: Mapping[str, tuple[object, ...]] = field(default_factory=dict)  # values that change nothing

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

    @property
    def names(self) -> tuple[str, ...]:
        """Every whole name that is known."""
        return tuple(name for each in self._lists().values() for name in each if not name.endswith("*"))

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
        usual={key: tuple(values) for key, values in table.get("usual", {}).items()},
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


def named_optimizer(name: str, stack: str) -> str:
    """Our name of an optimizer that a stack has; nothing for Adam, and for one that is predicted as Adam."""
    ours = str(load_table("optimizers")["ours"].get(_plain(name), ""))
    return ours if ours in capability_of(stack).optimizers else ""


def optimizer_note(name: str, stack: str = "") -> Iterator[str]:
    """What to say of an optimizer that is predicted as Adam, and is not Adam."""
    table, key = load_table("optimizers"), _plain(name)
    if not key or key in table["adam"] or (stack and named_optimizer(name, stack)):
        return
    what = table["others"].get(key, "is not known")
    yield f"Not considered, and it matters: optimizer {name}, which {what}; it is predicted as Adam."


def _plain(name: str) -> str:
    return "".join(each for each in name.lower() if each.isalnum())
