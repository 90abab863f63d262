"""The algorithms by name; an extension is one file and one line here."""

from dataclasses import fields
from typing import Any

from trainwright.algorithm.compressed import Compressed
from trainwright.algorithm.diana import Diana
from trainwright.algorithm.diloco import DiLoCo
from trainwright.algorithm.ef21 import Ef21
from trainwright.algorithm.exact import Exact
from trainwright.algorithm.ist import Ist
from trainwright.algorithm.local_sgd import LocalSgd
from trainwright.algorithm.marina import Marina
from trainwright.algorithm.power_sgd import PowerSgd
from trainwright.algorithm.protocol import Algorithm
from trainwright.algorithm.streaming import StreamingDiLoCo
from trainwright.errors import BadInput, UnknownName

ALGORITHMS: dict[str, type[Any]] = {
    "ddp": Exact,
    "local-sgd": LocalSgd,
    "diloco": DiLoCo,
    "streaming-diloco": StreamingDiLoCo,
    "ist": Ist,
    "compressed": Compressed,
    "power-sgd": PowerSgd,
    "diana": Diana,
    "ef21": Ef21,
    "marina": Marina,
}


def parse_algorithm(text: str) -> Algorithm:
    """An algorithm from its name and hyperparameters: `ist every=20 coverage=0.5`."""
    name, *words = text.split() or [""]
    if name not in ALGORITHMS:
        raise UnknownName("algorithm", name, ALGORITHMS)
    kinds = {each.name: each.type for each in fields(ALGORITHMS[name])}
    if words and not kinds:
        raise BadInput("algorithm", text, f"{name} has no hyperparameters", f'write it as "{name}"')
    given: dict[str, Any] = {}
    for word in words:
        key, value = _parse_word(name, word, kinds)
        if key in given:
            raise BadInput("algorithm", text, f"states {key} twice", "state it once")
        given[key] = value
    return ALGORITHMS[name](**given)  # type: ignore[no-any-return]


def _parse_word(algorithm: str, word: str, kinds: dict[str, Any]) -> tuple[str, Any]:
    name, _, text = word.partition("=")
    if name not in kinds:
        raise UnknownName(f"hyperparameter of {algorithm}", name, kinds)
    kind = kinds[name]
    if kind is bool:
        if text not in ("yes", "no"):
            raise BadInput(f"{algorithm}'s {name}", text, "is neither yes nor no", "write one of them")
        return name, text == "yes"
    try:
        return name, kind(text) if kind in (int, float) else text
    except ValueError:
        rule = f"is no {'whole ' if kind is int else ''}number"
        raise BadInput(f"{algorithm}'s {name}", text, rule, "write it like every=20") from None


def render_algorithm(algorithm: Algorithm) -> str:
    """The text that `parse_algorithm` reads."""
    name = next(name for name, kind in ALGORITHMS.items() if type(algorithm) is kind)
    given = {each.name: getattr(algorithm, each.name) for each in fields(algorithm)}  # type: ignore[arg-type]
    words = [f"{key}={written(value)}" for key, value in given.items()]
    return " ".join([name, *words])


def has_rounds(name: str) -> bool:
    """Whether workers of an algorithm meet every so many steps, rather than in each."""
    return any(each.name == "every" for each in fields(ALGORITHMS[name]))


def short_name(algorithm: Algorithm) -> str:
    """The name of an algorithm, with its compressor if it has one: `compressed-rand-k`."""
    name = render_algorithm(algorithm).split()[0]
    return f"{name}-{algorithm.by}" if hasattr(algorithm, "by") else name


def written(value: object) -> str:
    """A hyperparameter's value as text."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
