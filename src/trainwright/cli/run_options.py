"""Options of `trainwright run` as values: numbers, paths, what is kept, and the recipe."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.cli.refusal import refuse_given

if TYPE_CHECKING:
    from trainwright.runtime.trainer import Recipe
    from trainwright.runtime.training import Keeping

_MOST = 1_000_000_000


def parse_recipe(options: argparse.Namespace) -> "Recipe":
    """How weights are updated."""
    from trainwright.runtime.trainer import Recipe

    return Recipe(
        rate=number_of(options, "rate"), warmup=count_of(options, "warmup"), clip=number_of(options, "clip"),
        schedule=options.schedule, steps=count_of(options, "steps"),
    )  # fmt: skip


def parse_keeping(options: argparse.Namespace) -> "Keeping":
    """What a run leaves on the disk."""
    from trainwright.errors import BadInput
    from trainwright.runtime.training import Keeping

    if options.resume and not options.checkpoint:
        raise BadInput("--resume", "", "has no directory to go on from", "state --checkpoint")
    if not options.checkpoint:
        rule = "is of checkpoints, and none are written"
        refuse_given(options, ("every", "keep"), rule, "state --checkpoint DIR too")
    return Keeping(
        checkpoints=_path(options, "checkpoint"),
        every=count_of(options, "every"),
        most=whole_of(options, "keep"),
        resume=options.resume,
        metrics=_path(options, "metrics"),
        tensorboard=_path(options, "tensorboard"),
        record=_path(options, "record"),
        cost=options.cost,
        export=weights_file(options, "export", "--export"),
    )


def _path(options: argparse.Namespace, name: str) -> Path | None:
    text = getattr(options, name)
    return Path(text) if text else None


def weights_file(options: argparse.Namespace, name: str, flag: str) -> Path | None:
    """The file of weights that an option names."""
    from trainwright.runtime.state_file import check_suffix

    path = _path(options, name)
    if path:
        check_suffix(path, flag)
    return path


def whole_of(options: argparse.Namespace, name: str) -> int:
    """A whole number above 0."""
    from trainwright.units import parse_whole

    return parse_whole(getattr(options, name), _flag(name), most=_MOST)


def count_of(options: argparse.Namespace, name: str) -> int:
    """A whole number that may be 0."""
    return 0 if getattr(options, name) == "0" else whole_of(options, name)


def number_of(options: argparse.Namespace, name: str) -> float:
    """A number of 0 or more."""
    from math import isfinite

    from trainwright.errors import BadInput

    text = getattr(options, name)
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not isfinite(found) or found < 0:
        raise BadInput(_flag(name), text, "is no number of 0 or more", "write it like 3e-4")
    return found


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
