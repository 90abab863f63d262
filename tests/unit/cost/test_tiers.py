"""Expanded memory: where tensors lie, and what reading them there adds, by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.builders import floats, perfect, round_cluster, round_device
from trainwright.cluster.types import EVEN, Cluster, HybridModel, MemoryTier
from trainwright.cost.tiers import (
    Expansion,
    added_s,
    build_expansion,
    hybrid_bytes_per_s,
    spilled_bytes,
    tier_shares,
)
from trainwright.errors import BadInput


def expanded(count: int = 8, **changes: Any) -> Cluster:
    """Devices with 80 GB at 1 TB/s, and 200 GB more at 100 GB/s."""
    device = round_device()
    values: dict[str, Any] = {
        "name": "cxl", "capacity_bytes": 200e9, "bytes_per_s": 100e9, "access": "direct",
    }  # fmt: skip
    tier = MemoryTier(**(values | changes))
    return round_cluster(count, device=replace(device, memory=(*device.memory, tier)))


def expansion_of(cluster: Cluster) -> Expansion:
    found = build_expansion(cluster, perfect())
    assert found is not None
    return found


SIZES = {
    "optimizer": floats(60e9), "gradients": floats(20e9), "weights": floats(10e9),
    "kept": floats(25e9), "working": floats(5e9),
}  # fmt: skip


class TestPlacement:
    def test_what_fits_stays(self) -> None:
        small = {name: each / 2 for name, each in SIZES.items()}
        shares = tier_shares(expansion_of(expanded()), small, floats(0.0))
        assert all(float(share[0][0]) == 0.0 for share in shares.values())

    def test_optimizer_state_leaves_first_then_gradients(self) -> None:
        # 120 GB and 30 pinned on 80: 70 leave, all 60 of the optimizer and half of 20 of gradients
        shares = tier_shares(expansion_of(expanded()), SIZES, floats(30e9))
        found = {name: float(share[0][0]) for name, share in shares.items()}
        assert found == {"optimizer": 1.0, "gradients": 0.5, "weights": 0.0, "kept": 0.0, "working": 0.0}

    def test_a_stated_order_is_followed(self) -> None:
        order = ("activations", "weights", "gradients", "optimizer")
        shares = tier_shares(expansion_of(replace(expanded(), spill=order)), SIZES, floats(0.0))
        # 40 of 120 leave: activations that wait, then those at work, then all weights
        found = {name: float(share[0][0]) for name, share in shares.items()}
        assert found == {"optimizer": 0.0, "gradients": 0.0, "weights": 1.0, "kept": 1.0, "working": 1.0}

    def test_evenly_everything_leaves_by_the_share_that_does_not_fit(self) -> None:
        shares = tier_shares(expansion_of(replace(expanded(), spill=EVEN)), SIZES, floats(0.0))
        assert {float(share[0][0]) for share in shares.values()} == {40 / 120}

    def test_the_coldest_lies_in_the_last_of_two_tiers(self) -> None:
        cluster = expanded(capacity_bytes=30e9)
        pool = MemoryTier(name="pool", capacity_bytes=100e9, bytes_per_s=10e9, access="direct")
        device = replace(cluster.device, memory=(*cluster.device.memory, pool))
        shares = tier_shares(expansion_of(replace(cluster, device=device)), SIZES, floats(0.0))
        # optimizer state lies from 60 to 120 GB: 20 on the device, 30 in the nearer tier, 10 in the pool
        assert [float(each[0]) * 60 for each in shares["optimizer"]] == pytest.approx([30.0, 10.0])
        assert float(spilled_bytes(SIZES, shares)[0]) == pytest.approx(40e9)

    def test_a_pool_is_divided_among_its_sharers(self) -> None:
        cluster = expanded(16, shared="node")
        assert cluster.expanded[0].capacity_bytes == 200e9 / 8
        assert cluster.expanded[0].bytes_per_s == 100e9 / 8
        assert expanded(16, shared="fabric").expanded[0].capacity_bytes == 200e9 / 16
        assert cluster.capacity_bytes == 80e9 + 25e9

    def test_a_level_that_is_not_there_shares_nothing(self) -> None:
        with pytest.raises(BadInput, match="is no level of its network"):
            _ = expanded(16, shared="aisle").tiers

    def test_a_spill_order_names_every_part_once(self) -> None:
        with pytest.raises(BadInput, match="is not an order of"):
            replace(expanded(), spill=("weights", "optimizer"))


class TestHybridBandwidth:
    def test_it_equals_the_own_one_when_everything_fits(self) -> None:
        for hybrid in ("serial", "concurrent"):
            assert hybrid_bytes_per_s(1e12, 1e11, floats(0.0), hybrid)[0] == pytest.approx(1e12)  # type: ignore[arg-type]

    def test_in_turn_times_add_up_at_once_the_longer_counts(self) -> None:
        # of 1 TB a fifth at 100 GB/s: 2 s there, 0.8 s here
        assert hybrid_bytes_per_s(1e12, 1e11, floats(0.2), "serial")[0] == pytest.approx(1e12 / 2.8)
        assert hybrid_bytes_per_s(1e12, 1e11, floats(0.2), "concurrent")[0] == pytest.approx(1e12 / 2.0)

    @pytest.mark.parametrize("hybrid", ["serial", "concurrent"])
    def test_work_that_only_moves_takes_as_long_as_the_hybrid_bandwidth_says(
        self, hybrid: HybridModel
    ) -> None:
        expansion = expansion_of(replace(expanded(), spill=EVEN, hybrid=hybrid))
        shares = tier_shares(expansion, SIZES, floats(0.0))
        traffic = floats(1e12)
        took = 1.0 + added_s(expansion, shares, floats(1.0), traffic, {})
        assert took[0] == pytest.approx(1e12 / hybrid_bytes_per_s(1e12, 1e11, floats(1 / 3), hybrid)[0])

    def test_compute_hides_what_memory_takes(self) -> None:
        expansion = expansion_of(replace(expanded(), spill=EVEN))
        shares = tier_shares(expansion, SIZES, floats(0.0))
        # 1 TB, a third of it far: 2/3 s and 10/3 s
        added = added_s(expansion, shares, floats(1.0, 3.5, 4.0, 9.0), floats(1e12), {})
        assert added == pytest.approx([3.0, 0.5, 0.0, 0.0])

    def test_only_what_lies_far_is_charged(self) -> None:
        expansion = expansion_of(expanded())
        shares = tier_shares(expansion, SIZES, floats(30e9))  # optimizer all, gradients half
        touched = {"weights": floats(10e9), "gradients": floats(20e9), "optimizer": floats(60e9)}
        # 90 GB: 70 far in 0.7 s and 20 near in 0.02 s, instead of 0.09 s
        assert added_s(expansion, shares, floats(0.0), floats(90e9), touched)[0] == pytest.approx(0.63)
        assert added_s(expansion, shares, floats(0.0), floats(10e9), {"weights": floats(10e9)})[0] == 0.0

    def test_each_class_of_tensors_waits_for_the_latency_once(self) -> None:
        cluster = expanded(latency_s=1e-3)
        shares = tier_shares(expansion_of(cluster), SIZES, floats(30e9))
        touched = {"gradients": floats(20e9), "optimizer": floats(60e9), "weights": floats(1e9)}
        slow = added_s(expansion_of(cluster), shares, floats(0.0), floats(81e9), touched)
        fast = added_s(expansion_of(expanded()), shares, floats(0.0), floats(81e9), touched)
        assert slow[0] - fast[0] == pytest.approx(2e-3)


def test_a_tier_as_fast_as_the_devices_own_adds_nothing() -> None:
    expansion = expansion_of(expanded(bytes_per_s=1e12))
    shares = tier_shares(expansion, SIZES, floats(30e9))
    touched = {"optimizer": floats(60e9)}
    assert added_s(expansion, shares, floats(0.0), floats(60e9), touched)[0] == pytest.approx(0.0)


def test_what_is_not_direct_expands_nothing() -> None:
    assert build_expansion(expanded(access="copy"), perfect()) is None
    assert np.isclose(expanded(access="copy").capacity_bytes, 80e9)
