"""What networks cost, in dollars per GB/s of a device at each level."""

from dataclasses import replace

import pytest

from tests.builders import round_cluster
from trainwright.economics.network import network_dollars


def test_a_node_costs_links_and_switches_and_the_fabric_nics_too() -> None:
    # 100 GB/s inside at 4 + 13 and 10 GB/s outside at 7.8 + 18 + 31.6, for each of 16 devices.
    assert network_dollars(round_cluster(16)) == pytest.approx(16 * (100 * 17 + 10 * 57.4))


def test_a_cluster_of_one_node_has_no_nics() -> None:
    assert network_dollars(round_cluster(8)) == pytest.approx(8 * 100 * 17)


def test_a_torus_has_no_switches() -> None:
    cluster = round_cluster(8)
    inner, outer = cluster.network.levels
    network = replace(cluster.network, levels=(replace(inner, topology="torus3d"), outer))
    assert network_dollars(replace(cluster, network=network)) == pytest.approx(8 * 100 * 4)
