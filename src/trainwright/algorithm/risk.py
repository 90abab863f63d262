"""What algorithms have been measured to lose against exact data parallelism, as package data.

`risk.toml` is written by `trainwright study subnetworks --risk FILE`.
"""

import tomllib
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any

from trainwright.algorithm.protocol import Algorithm
from trainwright.algorithm.registry import parse_algorithm, short_name, written

EXACT_STEPS = ("warmup", "exact", "finish")  # hyperparameters that count steps of exact training
HIDDEN = {"mlp": 256, "transformer": 32}  # sizes of the networks that were measured
_MORE_TELLS_MORE = ("share", "levels", "coverage")  # hyperparameters: less of them is a larger risk


@dataclass(frozen=True, slots=True, kw_only=True)
class Risk:
    """The loss of a trained model above exact data parallelism's after as many steps, relative to that.

    `low` and `high` are the 95 % interval of its mean over seeds. `accuracy_points` is the accuracy less
    exact training's, in points of a hundred. It was measured on small networks: a warning, not a forecast.
    """

    algorithm: str
    network: str  # "mlp" or "transformer"
    workers: int
    excess_loss: float
    low: float
    high: float
    accuracy_points: float | None
    seeds: int
    source: str  # the command that measured it, and when
    setting: str = ""  # the algorithm with its hyperparameters, as `parse_algorithm` reads it
    steps: int = 0  # of the runs that were measured; 0: not stated

    @property
    def hyperparameters(self) -> dict[str, str]:
        """Those of the setting, as they are written."""
        return dict(word.split("=", 1) for word in self.setting.split()[1:])

    @property
    def exact_share(self) -> float:
        """Of the steps that were measured, those that trained the whole model exactly; 0 if not stated."""
        exact = sum(int(self.hyperparameters.get(name, 0)) for name in EXACT_STEPS)
        return exact / self.steps if self.steps else 0.0


def measured_risks(text: str) -> tuple[Risk, ...]:
    """All that was measured of an algorithm: by network, count of workers and setting.

    With another compressor it is another algorithm. What we would use comes before other settings.
    """
    name = short_name(parse_algorithm(text))
    return tuple(each for each in all_risks() if short_name(_algorithm(each)) == name)


def risks_like(text: str) -> tuple[Risk, ...]:
    """All that was measured of an algorithm, the settings that differ least from this one first."""
    return tuple(
        sorted(measured_risks(text), key=lambda risk: sum(a != b for _, a, b in _compared(text, risk)))
    )


def beyond_measured(text: str, risk: Risk) -> str:
    """In what an algorithm goes beyond the setting that was measured; nothing if in nothing.

    Rounds and exact steps are not looked at: they are those of a longer run.
    """
    for name, asked, measured in _compared(text, risk):
        other = asked != measured if isinstance(asked, (str, bool)) else False
        if other or (name in _MORE_TELLS_MORE and asked < measured):
            return f"{name}={written(asked)} was not measured, but {name}={written(measured)}"
    return ""


def _compared(text: str, risk: Risk) -> list[tuple[str, Any, Any]]:
    """The hyperparameters of an algorithm by name, and those that were measured."""
    asked, measured = parse_algorithm(text), _algorithm(risk)
    names = [each.name for each in fields(asked)]  # type: ignore[arg-type]
    return [(name, getattr(asked, name), getattr(measured, name)) for name in names]


def _algorithm(risk: Risk) -> Algorithm:
    return parse_algorithm(risk.setting or risk.algorithm)


@cache
def all_risks() -> tuple[Risk, ...]:
    """The whole table, as it ships."""
    text = (files("trainwright.algorithm") / "risk.toml").read_text(encoding="utf-8")
    return parse_risks(text)


def parse_risks(text: str) -> tuple[Risk, ...]:
    """A table of risks from its text."""
    return tuple(Risk(**{"accuracy_points": None, **each}) for each in tomllib.loads(text)["risk"])


def render_risks(risks: tuple[Risk, ...], head: str) -> str:
    """The text that `parse_risks` reads, with a comment on top."""
    parts = ["".join(f"# {line}\n" for line in head.splitlines())]
    for each in risks:
        parts.append("[[risk]]\n" + "".join(_written(name, getattr(each, name)) for name in _FIELDS))
    return "\n".join(parts)


_FIELDS = tuple(Risk.__dataclass_fields__)


def _written(name: str, value: str | float | None) -> str:
    if value is None:
        return ""
    return f'{name} = "{value}"\n' if isinstance(value, str) else f"{name} = {value}\n"
