"""The figures of some of the clusters of a job that holds many."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from trainwright.estimate.types import Job

Ints = NDArray[np.int64]
T = TypeVar("T")


def at(job: Job, where: "Ints | np.int64") -> Job:
    """The job with the figures of its clusters at some indices."""
    return replace(job, cluster=_at(job.cluster, where))


def _at(value: Any, where: "Ints | np.int64") -> Any:
    """A value with every array in it taken at `where`; what holds none is the same object."""
    if isinstance(value, np.ndarray):
        taken = value[where]
        return taken if isinstance(taken, np.ndarray) else taken.item()
    if is_dataclass(value) and not isinstance(value, type):
        changed = {
            field.name: new
            for field in fields(value)
            if (new := _at(old := getattr(value, field.name), where)) is not old
        }
        return altered(value, changed) if changed else value
    if isinstance(value, tuple):
        items = tuple(_at(each, where) for each in value)
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    if isinstance(value, Mapping):
        table = {key: _at(each, where) for key, each in value.items()}
        return table if any(table[key] is not value[key] for key in value) else value
    return value


def altered(value: T, changes: Mapping[str, Any]) -> T:
    """A copy of a frozen dataclass with other fields, unchecked: checks are written for single numbers."""
    copy = object.__new__(type(value))
    for field in fields(value):  # type: ignore[arg-type]
        object.__setattr__(copy, field.name, changes.get(field.name, getattr(value, field.name)))
    return copy
