"""What devices reach of their datasheets in matrix products, from published kernels alone.

Sources of ordinary shapes give a rate directly: the median, over kernels, of the share of peak that makes the
model of `cost.gemm` take the measured time. Sources that searched for the best shape give more than a step
meets; `BEST_SHAPE` is the median ratio on the devices that have both. A device's rate is the geometric mean
over its sources, so that a thousand kernels of one profile do not outweigh another laboratory.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from trainwright.cluster.load import load_device
from trainwright.cluster.types import DTYPE_BYTES, Device
from trainwright.cost.constants import Stack
from trainwright.cost.gemm import gemm_time_s
from trainwright.cost.load import Constants
from trainwright.cost.operators import Machine
from trainwright.errors import TrainwrightError
from trainwright.validate.kernels import kernel_device, kernel_rows
from trainwright.validate.problem import unit_of

_SHORT_S = 5e-5  # kernels below this are launches more than work
_FEW = 10  # kernels of a source up to which they are the best of a search over shapes
_WIDE = ("bf16", "fp16")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRate:
    """A share of a datasheet's rate that products of ordinary shapes reach, and what it rests on."""

    share: float
    sources: int
    kernels: int


def kernel_rates(path: Path, constants: Constants) -> Mapping[tuple[str, str], KernelRate]:
    """Rates by unit of the constants and field (`gemm` of 16 bits, `gemm_fp8`).

    No rate of fewer bits exceeds that of 16 bits: their kernels are the same ones with less time to load.
    """
    shares: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in kernel_rows(path):
        device = kernel_device(row["hardware"])
        field = "gemm" if row["dtype"] in _WIDE else "gemm_fp8" if "fp8" in row["dtype"] else ""
        if device is None or row["op"] != "gemm" or not row["M"] or not field:
            continue
        if _seconds(row) < _SHORT_S:
            continue
        source = f"{row['source']} {device.name}"
        shares[unit_of(constants, device), field][source].append(_share(row, device, constants, field))
    best = _best_shape(shares)
    result = {key: _mean(each, best) for key, each in shares.items()}
    for (unit, field), rate in list(result.items()):
        wide = result.get((unit, "gemm"))
        if field == "gemm_fp8" and wide is not None and rate.share > wide.share:
            result[unit, field] = replace(rate, share=wide.share)
    return result


def with_kernel_rates(constants: Constants, path: Path) -> Constants:
    """The constants with the rates of units that kernels were published for, or for others of their family.

    Where only 16-bit kernels were, fp8 and fp4 keep their ratio to them.
    """
    rates = kernel_rates(path, constants)
    changed = dict(constants.efficiencies)
    for unit, known in constants.efficiencies.items():
        wide, fp8 = (_rate(rates, constants, unit, field) for field in ("gemm", "gemm_fp8"))
        if wide is None:
            continue
        fp8 = min(fp8, wide) if fp8 is not None else wide * min(known.gemm_fp8 / known.gemm, 1.0)
        changed[unit] = replace(
            known, gemm=wide, gemm_fp8=fp8, gemm_fp4=fp8 * min(known.gemm_fp4 / known.gemm_fp8, 1.0)
        )
    return replace(constants, efficiencies=changed)


def _rate(
    rates: Mapping[tuple[str, str], KernelRate], constants: Constants, unit: str, field: str
) -> float | None:
    """The rate of a unit, else the mean of its family's, unless the prior sets the unit apart from it."""
    if (unit, field) in rates:
        return rates[unit, field].share
    family = _family(unit)
    priors = constants.efficiencies
    if family not in priors or priors[unit].gemm != priors[family].gemm:
        return None
    alike = [each.share for (name, f), each in rates.items() if f == field and _family(name) == family]
    return float(np.exp(np.mean(np.log(alike)))) if alike else None


def _family(unit: str) -> str:
    """The family of a device, or the unit itself where it is one."""
    try:
        return load_device(unit).family
    except TrainwrightError:
        return unit


def _share(row: Mapping[str, str], device: Device, constants: Constants, field: str) -> float:
    """The share of peak that gives a product its measured time."""
    dtype = "bf16" if field == "gemm" else "fp8"
    m, n, k = (np.array([float(row[name])]) for name in ("M", "N", "K"))
    groups = np.array([float(row["batch_or_groups"] or 1)])
    efficiency = replace(constants.efficiency(device), gemm=1.0, gemm_fp8=1.0)
    machine = Machine(device=device, efficiency=efficiency, stack=Stack(name="kernel"), precision=dtype)
    ideal_s = float(gemm_time_s(machine.matrix_unit(dtype), m, n, k, groups, DTYPE_BYTES[dtype])[0])
    # Some sources count cores where a device is a chip: their peak says which.
    counted = device.peak(dtype) / (float(row["peak_tflops"]) * 1e12) if row["peak_tflops"] else 1.0
    return counted * ideal_s / _seconds(row)


def _seconds(row: Mapping[str, str]) -> float:
    """The measured time of a product, from its rate."""
    flops = 2.0 * float(row["M"]) * float(row["N"]) * float(row["K"]) * float(row["batch_or_groups"] or 1)
    return flops / (float(row["tflops_achieved"]) * 1e12)


def _best_shape(shares: Mapping[tuple[str, str], Mapping[str, list[float]]]) -> float:
    """What ordinary shapes reach of the best one, in the median over units that have both kinds of source."""
    ratios = []
    for each in shares.values():
        ordinary = [np.median(values) for values in each.values() if len(values) > _FEW]
        searched = [np.median(values) for values in each.values() if len(values) <= _FEW]
        if ordinary and searched:
            ratios.append(np.exp(np.mean(np.log(ordinary)) - np.mean(np.log(searched))))
    return min(float(np.median(ratios)), 1.0) if ratios else 1.0


def _mean(each: Mapping[str, list[float]], best: float) -> KernelRate:
    logs = [np.log(np.median(values) * (1.0 if len(values) > _FEW else best)) for values in each.values()]
    share = min(float(np.exp(np.mean(logs))), 1.0)
    return KernelRate(share=share, sources=len(each), kernels=sum(map(len, each.values())))
