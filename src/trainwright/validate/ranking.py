"""Whether the layout that is ranked first is among the best that were measured."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from trainwright.validate.dataset import Dataset, Predictions, measured

LEAST = 8  # layouts in a group


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """One group of layouts: how much slower per token the one ranked first is than the best measured."""

    source: str
    model: str
    devices: int
    layouts: int
    behind: float


def rank_groups(dataset: Dataset, predictions: Predictions) -> tuple[Ranked, ...]:
    """Groups of at least eight runs that share source, model and device count, compared by time per token."""
    truth = measured(dataset)["step_s"]
    groups: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for index, case in enumerate(dataset.cases):
        if case is not None and np.isfinite(truth[index]):
            model = dataset.rows[index].get("model") or case.graph.name
            groups[(case.source, model, case.cluster.count)].append(index)
    result = []
    for (source, model, devices), members in sorted(groups.items()):
        if len(members) >= LEAST:
            tokens = np.array([c.global_batch * c.seq for i in members if (c := dataset.cases[i])])
            predicted, real = predictions.step_s[members] / tokens, truth[members] / tokens
            behind = float(real[np.argmin(predicted)] / real.min() - 1.0)
            result.append(
                Ranked(source=source, model=model, devices=devices, layouts=len(members), behind=behind)
            )
    return tuple(result)
