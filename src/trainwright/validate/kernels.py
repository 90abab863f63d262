"""The shape of the matrix-product model against published kernel timings."""

import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trainwright.cluster.load import find_device_alias, load_device
from trainwright.cluster.types import Device
from trainwright.cost.constants import Stack
from trainwright.cost.gemm import gemm_time_s
from trainwright.cost.load import Constants
from trainwright.cost.operators import Machine
from trainwright.errors import TrainwrightError


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelError:
    """How well the model follows one device's kernels: `scale` is the median of measured over predicted."""

    name: str
    rows: int
    scale: float
    median: float  # absolute error once the scale is taken out


def gemm_errors(path: Path, constants: Constants) -> tuple[KernelError, ...]:
    """Errors of matrix products by device."""
    ratios: dict[str, list[float]] = defaultdict(list)
    for row in kernel_rows(path):
        device = kernel_device(row["hardware"])
        if device is None or row["op"] != "gemm" or not row["M"] or row["dtype"] not in ("bf16", "fp16"):
            continue
        m, n, k = (np.array([float(row[name])]) for name in ("M", "N", "K"))
        groups = np.array([float(row["batch_or_groups"] or 1)])
        machine = Machine(
            device=device,
            efficiency=constants.efficiency(device),
            stack=Stack(name="kernel"),
            precision="bf16",
        )
        predicted = float(gemm_time_s(machine.matrix_unit("bf16"), m, n, k, groups, 2.0)[0])
        measured = float((2.0 * m * n * k * groups)[0]) / (float(row["tflops_achieved"]) * 1e12)
        ratios[row["hardware"]].append(measured / predicted)
    return _errors(ratios)


def _errors(ratios: Mapping[str, list[float]]) -> tuple[KernelError, ...]:
    result = []
    for name, values in sorted(ratios.items()):
        scale = float(np.median(values))
        off = np.abs(scale / np.array(values) - 1.0)
        result.append(KernelError(name=name, rows=len(values), scale=scale, median=float(np.median(off))))
    return tuple(result)


def kernel_rows(path: Path) -> Iterator[dict[str, str]]:
    """The rows of a table of kernels."""
    with path.open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)


def kernel_device(name: str) -> Device | None:
    """The catalog's device of a name, if it has one."""
    try:
        return load_device(find_device_alias(name))
    except TrainwrightError:
        return None
