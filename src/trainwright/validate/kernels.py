"""The shape of the matrix-product and collective models against published kernel timings."""

import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trainwright.cluster.load import find_device_alias, load_device, load_network
from trainwright.cluster.types import Cluster, Device
from trainwright.cost.collective import all_gather_s, all_reduce_s, all_to_all_s, span
from trainwright.cost.constants import Stack
from trainwright.cost.gemm import gemm_time_s
from trainwright.cost.load import Constants
from trainwright.cost.operators import Machine
from trainwright.errors import TrainwrightError
from trainwright.estimate.network import level_links

_COLLECTIVES = {
    "all_reduce": all_reduce_s,
    "all_gather": all_gather_s,
    "reduce_scatter": all_gather_s,
    "all_to_all": all_to_all_s,
}


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
    for row in _rows(path):
        device = _device(row["hardware"])
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


def collective_errors(path: Path, constants: Constants) -> tuple[KernelError, ...]:
    """Errors of collectives of 1 MB and more inside a node of 8, by device and collective."""
    ratios: dict[str, list[float]] = defaultdict(list)
    for row in _rows(path):
        device = _device(row["hardware"].split(" (")[0])
        size, members = _float(row["size_bytes"]), _float(row["n_gpus"])
        inside = row["nodes"] in ("1", "1.0") and 1 < members <= 8
        if device is None or not inside or size < 1e6 or row["collective"] not in _COLLECTIVES:
            continue
        if not (measured := _measured_s(row, size, members)):
            continue
        cluster = Cluster(name="node", device=device, network=load_network(device.network), count=8)
        links = level_links(cluster, constants.efficiency(device), Stack(name="kernel"))
        where = span(links, np.array([members]), np.ones(1))
        predicted = float(_COLLECTIVES[row["collective"]](links, where, np.array([size]))[0])
        ratios[f"{device.name} {row['collective']}"].append(measured / predicted)
    return tuple(error for error in _errors(ratios) if error.rows >= 5)


def _measured_s(row: Mapping[str, str], size: float, members: float) -> float:
    if row["time_us"]:
        return _float(row["time_us"]) * 1e-6
    busy = _float(row["busbw_GBps"]) * 1e9
    trips = 2.0 if row["collective"] == "all_reduce" else 1.0
    return trips * (members - 1) / members * size / busy if busy else 0.0


def _errors(ratios: Mapping[str, list[float]]) -> tuple[KernelError, ...]:
    result = []
    for name, values in sorted(ratios.items()):
        scale = float(np.median(values))
        off = np.abs(scale / np.array(values) - 1.0)
        result.append(KernelError(name=name, rows=len(values), scale=scale, median=float(np.median(off))))
    return tuple(result)


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _device(name: str) -> Device | None:
    try:
        return load_device(find_device_alias(name))
    except TrainwrightError:
        return None
