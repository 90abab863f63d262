"""Rates of devices follow from published kernels, whatever their number, and fewer bits never have more."""

from pathlib import Path

import pytest

from trainwright.cluster.load import load_device
from trainwright.cost.constants import Efficiency, Stack
from trainwright.cost.load import Constants
from trainwright.validate.kernel_rates import kernel_rates, with_kernel_rates

CONSTANTS = Constants(
    efficiencies={
        "class": Efficiency(),
        "hopper": Efficiency(gemm=0.6, gemm_fp8=0.6, kernel_s=0.0, depth=0.0, tile_penalty=0.0),
        "blackwell": Efficiency(gemm=0.6),
        "b200": Efficiency(gemm=0.6),
        "b300": Efficiency(gemm=0.6),
    },
    stacks={"generic": Stack(name="generic")},
)
HEAD = "source,hardware,op,dtype,batch_or_groups,M,N,K,tflops_achieved,peak_tflops\n"
SIZE = 16384


def table(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "gemm.csv"
    path.write_text(HEAD + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def kernels(
    source: str, hardware: str, share: float, count: int = 1, dtype: str = "bf16", size: int = SIZE
) -> list[str]:
    peak = load_device("h100-sxm-80gb" if "H100" in hardware else "b200").peak(dtype.partition("_")[0]) / 1e12
    line = f"{source},{hardware},gemm,{dtype},,{size},{size},{size},{share * peak},{peak}"
    return [line] * count


def test_many_kernels_of_one_source_count_as_much_as_those_of_another(tmp_path: Path) -> None:
    lines = [*kernels("a", "H100-SXM-80GB", 0.8, 20), *kernels("b", "H100-SXM-80GB", 0.5, 200)]
    rate = kernel_rates(table(tmp_path, *lines), CONSTANTS)["hopper", "gemm"]
    assert rate.share == pytest.approx((0.8 * 0.5) ** 0.5, rel=0.03)
    assert (rate.sources, rate.kernels) == (2, 220)


def test_the_best_of_a_search_is_lowered_to_ordinary_shapes(tmp_path: Path) -> None:
    lines = [*kernels("profile", "H100-SXM-80GB", 0.6, 20), *kernels("search", "H100-SXM-80GB", 0.8)]
    rate = kernel_rates(table(tmp_path, *lines, *kernels("search", "B200", 0.8)), CONSTANTS)["b200", "gemm"]
    assert rate.share == pytest.approx(0.8 * 0.6 / 0.8, rel=0.15)


def test_fewer_bits_reach_no_larger_share(tmp_path: Path) -> None:
    lines = [*kernels("a", "H100-SXM-80GB", 0.6), *kernels("a", "H100-SXM-80GB", 0.7, dtype="fp8_e4m3")]
    rates = kernel_rates(table(tmp_path, *lines), CONSTANTS)
    assert rates["hopper", "gemm_fp8"].share == rates["hopper", "gemm"].share


def test_launches_are_no_evidence_of_rates(tmp_path: Path) -> None:
    assert not kernel_rates(table(tmp_path, *kernels("a", "H100-SXM-80GB", 0.01, size=128)), CONSTANTS)


def test_a_device_without_kernels_has_the_rate_of_its_family(tmp_path: Path) -> None:
    found = with_kernel_rates(CONSTANTS, table(tmp_path, *kernels("a", "B200", 0.5)))
    assert found.efficiencies["b300"].gemm == found.efficiencies["b200"].gemm != 0.6
    assert found.efficiencies["hopper"].gemm == 0.6
