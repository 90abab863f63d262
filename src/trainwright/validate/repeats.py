"""How far the same configuration, measured several times, scatters: the noise floor of any predictor."""

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from trainwright.validate.dataset import Dataset, measured

# Columns that tell a configuration; a release is not among them, as users rarely know what it changes.
_SAME = (
    "source", "hardware", "gpus", "model", "layers", "hidden", "seq_len", "global_batch", "micro_batch", "tp",
    "pp", "vpp", "cp", "ep", "zero", "sequence_parallel", "recompute", "recompute_detail", "precision",
    "framework", "attention", "offload", "notes",
)  # fmt: skip


def repeat_scatter(dataset: Dataset) -> Mapping[str, float]:
    """By source, the deviation of the logarithm of step times of runs of one configuration."""
    times = measured(dataset)["step_s"]
    groups: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for row, time_s in zip(dataset.rows, times, strict=True):
        if np.isfinite(time_s):
            groups[tuple((row.get(name) or "").strip() for name in _SAME)].append(float(np.log(time_s)))
    squares: dict[str, list[float]] = defaultdict(list)
    freedom: dict[str, int] = defaultdict(int)
    for key, logs in groups.items():
        if len(logs) > 1:
            squares[key[0]].append(float(((np.array(logs) - np.mean(logs)) ** 2).sum()))
            freedom[key[0]] += len(logs) - 1
    return {source: float(np.sqrt(sum(each) / freedom[source])) for source, each in squares.items()}
