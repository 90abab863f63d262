"""The catalog of training stacks: one file per stack, one more per older release."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from trainwright.errors import BadInput, UnknownName
from trainwright.input_file import load_toml
from trainwright.stack.capability import CHOICES, MICROBATCH_RULES, Capability
from trainwright.stack.optimizer import GRADIENT_BYTES, OPTIMIZERS
from trainwright.stack.state import StateLayout

_STACKS = Path(__file__).parents[1] / "catalog" / "stacks"
_ENTRY_KEYS = ("name", "aliases", "forks", "description", "source", "kin", "capability")
_OWN = ("stack",)  # of Capability, set from the entry's name
_NAMED = {
    "optimizers": OPTIMIZERS, "sharded_optimizers": OPTIMIZERS, "fsdp_optimizers": OPTIMIZERS,
    "offload_optimizers": OPTIMIZERS, "grad_dtypes": GRADIENT_BYTES,
}  # fmt: skip
_WRITTEN = {each.name: each for each in fields(Capability) if each.name not in _OWN}


@dataclass(frozen=True, slots=True, kw_only=True)
class StackEntry:
    """What the catalog says about a stack; `kin` names the one that its numbers start from in the fit.

    `forks` is software built on it that has no entry: it borrows both numbers and capability.
    `capability` is the newest release's; `releases` has every release by name, the newest first.
    """

    name: str
    description: str
    source: str
    capability: Capability
    releases: Mapping[str, Capability]
    aliases: tuple[str, ...] = ()
    forks: tuple[str, ...] = ()
    kin: str = ""


@cache
def stack_entries() -> Mapping[str, StackEntry]:
    """Every stack of the catalog by name."""
    found: dict[str, StackEntry] = {}
    for path in sorted(_STACKS.glob("*.toml")):
        if "@" not in path.stem:
            entry = _entry(path)
            found[entry.name] = entry
    return MappingProxyType(found)


def stack_name(text: str) -> str:
    """The catalog's name for a stack's name or alias; a release may follow as in `torchtitan@0.2.2`."""
    name, _, release = text.strip().lower().replace("_", "-").replace(" ", "-").partition("@")
    known = {
        alias: entry.name for entry in stack_entries().values() for alias in (entry.name, *entry.aliases)
    }
    if name not in known:
        raise UnknownName("stack", text, known)
    entry = stack_entries()[known[name]]
    if not release or release == entry.capability.release:
        return entry.name
    if release not in entry.releases:
        listed = ", ".join(entry.releases) or "no releases"
        raise BadInput("stack release", text, f"{entry.name} has {listed}", "use one of them, or none")
    return f"{entry.name}@{release}"


def kin_of(name: str) -> str:
    """The stack that another one's numbers start from, and stay at while it has no runs; empty if none."""
    if name in stack_entries():
        return stack_entries()[name].kin
    return next((entry.name for entry in stack_entries().values() if name in entry.forks), "")


def capability_of(name: str) -> Capability:
    """What a stack can run, by its catalog name, with or without a release; any software's if unknown."""
    stack, _, release = name.partition("@")
    entry = stack_entries().get(stack) or stack_entries().get(kin_of(stack))
    if entry is None:
        return Capability(stack=stack)
    return entry.releases[release] if release else entry.capability


def _entry(path: Path) -> StackEntry:
    values = load_toml(path, "stack file")
    for key in values:
        if key not in _ENTRY_KEYS:
            raise UnknownName(f"{path.name}: key", key, _ENTRY_KEYS)
    own = values.pop("capability", {})
    newest = _capability(values["name"], own, path.name)
    releases = {newest.release: newest} if newest.release else {}
    for older in sorted(_STACKS.glob(f"{path.stem}@*.toml"), reverse=True):
        changed = _capability(values["name"], own | load_toml(older, "stack file"), older.name)
        if changed.release != older.stem.partition("@")[2]:
            raise BadInput(f"{older.name}: release", changed.release, "is not the file's", "name them alike")
        releases[changed.release] = changed
    aliases, forks = (tuple(values.pop(key, ())) for key in ("aliases", "forks"))
    return StackEntry(
        **values, aliases=aliases, forks=forks, capability=newest, releases=MappingProxyType(releases)
    )


def _state(table: Mapping[str, Any], file: str) -> StateLayout:
    known = [each.name for each in fields(StateLayout)]
    for key in table:
        if key not in known:
            raise UnknownName(f"{file}: state", key, known)
    return StateLayout(**table)


def _capability(stack: str, table: Mapping[str, Any], file: str) -> Capability:
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in _WRITTEN:
            raise UnknownName(f"{file}: key", key, _WRITTEN)
        if key in CHOICES and value not in CHOICES[key]:
            raise UnknownName(f"{file}: {key}", str(value), CHOICES[key])
        for name in value if key in _NAMED else ():
            if name not in _NAMED[key]:
                raise UnknownName(f"{file}: {key}", str(name), _NAMED[key])
        values[key] = tuple(value) if isinstance(value, list) else value
    for rule in values.get("microbatches", {}).values():
        if rule not in MICROBATCH_RULES:
            raise UnknownName(f"{file}: microbatches", rule, MICROBATCH_RULES)
    if "microbatches" in values:
        values["microbatches"] = dict(values["microbatches"])
    if "weight_bytes" in values:
        values["weight_bytes"] = {name: dict(each) for name, each in values["weight_bytes"].items()}
    if "state" in values:
        values["state"] = _state(values["state"], file)
    found = Capability(stack=stack, **values)
    if found.usual_zero not in found.zeros:
        rule = f"is none of zeros, {', '.join(map(str, found.zeros))}"
        raise BadInput(f"{file}: usual_zero", str(found.usual_zero), rule, "name one")
    return found
