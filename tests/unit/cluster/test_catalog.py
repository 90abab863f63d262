"""Every device and network of the catalog loads, says where it is from, and is plausible."""

from itertools import pairwise

import pytest

from trainwright.cluster.load import device_names, load_cluster, load_device, load_network, network_names

TB = 1e12
BF16_TFLOPS = {  # dense, as the entries were ordered: guards against slips of the pen, is no second source
    "a100-40gb": 312,
    "a100-80gb": 312,
    "h100-sxm-80gb": 989,
    "h100-pcie-80gb": 756,
    "h100-nvl-94gb": 835.5,
    "h200-sxm-141gb": 989,
    "b200": 2250,
    "b300": 2250,
    "gb200": 2500,
    "gb300": 2500,
    "l40s": 362,
    "a10": 125,
    "a10g": 70,
    "mi210": 181,
    "mi250": 181,
    "mi250x": 191.5,
    "mi300x": 1307,
    "mi350x": 2306,
    "mi355x": 2516,
    "tpu-v3": 123,
    "tpu-v4": 275,
    "tpu-v5e": 197,
    "tpu-v5p": 459,
    "tpu-v6e": 918,
    "tpu-v7": 2307,
    "trn1": 190,
    "trn2": 667,
    "trn3": 671,
    "gaudi2": 432,
    "gaudi3": 1677,
    "dojo-d1": 362,
}


@pytest.mark.parametrize("name", device_names())
class TestDevice:
    def test_its_name_is_its_file_name(self, name: str) -> None:
        assert load_device(name).name == name

    def test_it_says_where_its_numbers_are_from(self, name: str) -> None:
        source = load_device(name).source
        assert any(year in source for year in map(str, range(2017, 2027)))
        assert "price:" in source

    def test_its_default_network_exists(self, name: str) -> None:
        assert load_device(name).network in network_names()

    def test_it_draws_more_at_work_than_idle(self, name: str) -> None:
        device = load_device(name)
        assert 0 < device.idle_w < device.peak_w

    def test_narrower_numbers_are_never_slower(self, name: str) -> None:
        device = load_device(name)
        rates = [device.peak(dtype) for dtype in ("fp32", "bf16", "fp8", "fp4")]
        assert all(wide <= narrow for wide, narrow in pairwise(rates))

    def test_its_memory_has_a_bandwidth_that_exists(self, name: str) -> None:
        assert 0.1 * TB <= load_device(name).memory[0].bytes_per_s <= 30 * TB

    def test_its_outer_memory_is_slower(self, name: str) -> None:
        tiers = load_device(name).memory
        assert all(inner.bytes_per_s > outer.bytes_per_s for inner, outer in pairwise(tiers))

    def test_it_has_a_buffer_no_larger_than_its_memory(self, name: str) -> None:
        device = load_device(name)
        assert 0 < device.buffer_bytes <= device.memory[0].capacity_bytes

    def test_it_makes_a_cluster(self, name: str) -> None:
        assert load_cluster(f"{name}:64").levels


@pytest.mark.parametrize("name", network_names())
class TestNetwork:
    def test_its_name_is_its_file_name(self, name: str) -> None:
        assert load_network(name).name == name

    def test_it_says_where_its_numbers_are_from(self, name: str) -> None:
        assert len(load_network(name).source) > 20

    def test_it_is_slower_and_later_further_out(self, name: str) -> None:
        for inner, outer in pairwise(load_network(name).levels):
            assert inner.bytes_per_s >= outer.bytes_per_s / outer.oversubscription
            assert inner.latency_s <= outer.latency_s

    def test_only_its_outermost_level_is_open(self, name: str) -> None:
        sizes = [level.size for level in load_network(name).levels]
        assert all(size > 1 for size in sizes[:-1])
        assert sizes[-1] == 0

    def test_a_hop_takes_between_a_tenth_and_a_hundred_microseconds(self, name: str) -> None:
        assert all(1e-7 <= level.latency_s <= 1e-4 for level in load_network(name).levels)


@pytest.mark.parametrize(("name", "tflops"), BF16_TFLOPS.items())
def test_a_bf16_rate_is_the_dense_one(name: str, tflops: float) -> None:
    assert load_device(name).peak("bf16") == pytest.approx(tflops * 1e12)


@pytest.mark.parametrize(
    ("name", "gb_per_s"),
    [
        ("v100-16gb", 900),
        ("a100-80gb", 2039),
        ("a100-40gb", 1555),
        ("h100", 3350),
        ("h200", 4800),
        ("b200", 7700),
    ],
)
def test_a_memory_bandwidth_is_as_stated(name: str, gb_per_s: float) -> None:
    assert load_device(name).memory[0].bytes_per_s == pytest.approx(gb_per_s * 1e9)


@pytest.mark.parametrize(
    ("name", "inner_gb_per_s", "outer_gbit_per_s"),
    [
        ("dgx-a100", 300, 200),
        ("dgx-h100", 450, 400),
        ("hgx-h800", 200, 400),
        ("dgx-b200", 900, 400),
        ("dgx-b300", 900, 800),
        ("gb200-nvl72", 900, 400),
        ("gb300-nvl72", 900, 800),
        ("aws-p4d", 300, 50),  # 400 Gb/s per node of 8
        ("aws-p5", 450, 400),  # 3200 Gb/s per node of 8
        ("gcp-a3-high", 450, 100),  # 4 NICs of 200 Gb/s per node of 8
        ("gcp-a3-mega", 450, 200),
    ],
)
def test_link_rates_are_per_device_and_direction(
    name: str, inner_gb_per_s: float, outer_gbit_per_s: float
) -> None:
    levels = load_network(name).levels
    assert levels[0].bytes_per_s == pytest.approx(inner_gb_per_s * 1e9)
    assert levels[-1].bytes_per_s == pytest.approx(outer_gbit_per_s * 1e9 / 8)
