"""What each group of a dataset is predicted with, where `--cost` asks for a source."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from trainwright.cost.load import Constants
from trainwright.cost.source import Source, build_source, load_profile, parse_cost
from trainwright.errors import BadInput
from trainwright.validate.compare import Ranges
from trainwright.validate.dataset import Dataset, Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Sourced:
    """A dataset, the source of each of its groups, and what to say of them; rows without one say why."""

    dataset: Dataset
    sources: tuple[Source, ...]
    notes: tuple[str, ...]

    @property
    def ranges(self) -> Ranges:
        """The range of each row's prediction; not a number where a row is not predicted."""
        low, high = (np.full(len(self.dataset.rows), np.nan) for _ in range(2))
        for group, source in zip(self.dataset.groups, self.sources, strict=True):
            low[list(group.indices)], high[list(group.indices)] = source.interval.low, source.interval.high
        return Ranges(low=low, high=high)


def source_groups(dataset: Dataset, cost: str | None, constants: Constants) -> Sourced:
    """The dataset with sources. Times that were `profiled` hold for the profiled device only.

    `projected` ones are carried over to every other, which the notes tell.
    """
    name, file = parse_cost(cost) if cost is not None else ("calibrated", "")
    if name == "profiled" and file:
        dataset = _of_device(dataset, cost or "", Path(file))
    known: dict[tuple[object, ...], Source] = {}
    for group in dataset.groups:
        if (key := _key(group)) not in known:
            stack = constants.stack(group.stack)
            known[key] = build_source(cost, "the table", group.case.cluster, constants, stack)
    told = () if name == "calibrated" else tuple(note for each in known.values() for note in each.notes)
    return Sourced(
        dataset=dataset,
        sources=tuple(known[_key(group)] for group in dataset.groups),
        notes=tuple(dict.fromkeys(told)),
    )


def _key(group: Group) -> tuple[object, ...]:
    cluster = group.case.cluster
    return (cluster.device.name, cluster.network.name, cluster.network.levels, group.stack)


def _of_device(dataset: Dataset, cost: str, path: Path) -> Dataset:
    """The dataset with no groups on other devices than the profiled one; their rows say why."""
    device = load_profile(path)[1].device
    kept = tuple(group for group in dataset.groups if group.case.cluster.device == device)
    if not kept:
        rule = f"was measured on {device.name}, and no run of the table was there"
        raise BadInput("--cost", cost, rule, f"carry it over with projected:{path}")
    reasons = list(dataset.reasons)
    for group in dataset.groups:
        if group not in kept:
            for index in group.indices:
                reasons[index] = f"--cost {cost}: was measured on {device.name}, not on this device"
    return replace(dataset, groups=kept, reasons=tuple(reasons))
