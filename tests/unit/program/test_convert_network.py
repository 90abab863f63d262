"""Groups of devices lie on the levels of a network as collectives are priced."""

import numpy as np
import pytest

from tests.builders import floats
from trainwright.cost.collective import Link, all_gather_s, all_reduce_s, all_to_all_s, send_s, span
from trainwright.program.network import Network, as_span, messages_lines, spans

NODE = Link(inside=8, bytes_per_s=100e9, latency_s=1e-6, reduction=False, size=8)
RACK = Link(inside=32, bytes_per_s=20e9, latency_s=3e-6, reduction=False, size=4)
FABRIC = Link(inside=256, bytes_per_s=10e9, latency_s=9e-6, reduction=False, size=8)
NETWORK = Network(links=(NODE, RACK, FABRIC))
GB = floats(1e9)


@pytest.mark.parametrize(
    ("size", "stride"), [(8, 1), (4, 2), (8, 8), (16, 4), (64, 1), (3, 5), (6, 6), (2, 128)]
)
def test_equally_spaced_groups_are_seen_as_the_closed_form_sees_them(size: int, stride: int) -> None:
    devices = np.arange(size)[None, :] * stride
    where = as_span(spans(NETWORK.links, devices))
    expected = span(NETWORK.links, floats(size), floats(stride))
    assert [each.tolist() for each in where.below] == [each.tolist() for each in expected.below]
    assert [each.tolist() for each in where.fan] == [each.tolist() for each in expected.fan]


def test_other_groups_are_counted_level_by_level() -> None:
    where = as_span(spans(NETWORK.links, np.array([[0, 1, 2, 3, 32, 33, 34, 35]])))
    # 4 in a node, no more in a rack, 2 racks
    assert [fan.tolist() for fan in where.fan] == [[4.0], [1.0], [2.0]]


def test_collectives_cost_what_the_cost_functions_say() -> None:
    where = span(NETWORK.links, floats(16), floats(1))
    for kind, cost in (
        ("all_reduce", all_reduce_s),
        ("all_gather", all_gather_s),
        ("all_to_all", all_to_all_s),
    ):
        expected = float(cost(NETWORK.links, where, GB)[0])
        assert NETWORK.seconds(kind, range(16), 1e9) == pytest.approx(expected, rel=1e-12)


def test_of_groups_that_work_at_once_the_slowest_counts() -> None:
    both = NETWORK.seconds("all_gather", [[0, 1], [2, 34]], 1e9)
    assert both == NETWORK.seconds("all_gather", [2, 34], 1e9) > NETWORK.seconds("all_gather", [0, 1], 1e9)


def test_one_device_waits_for_nobody() -> None:
    assert NETWORK.seconds("all_gather", [5], 1e9) == 0.0


@pytest.mark.parametrize("distance", [1, 7, 8, 31, 32, 200])
def test_a_message_costs_what_its_distance_says(distance: int) -> None:
    ((fixed, slope),) = messages_lines(NETWORK, np.array([[0]]), np.array([[distance]]))
    assert fixed + slope * 1e9 == pytest.approx(float(send_s(NETWORK.links, floats(distance), GB)[0]))


def test_a_message_to_oneself_is_free() -> None:
    assert messages_lines(NETWORK, np.array([[4]]), np.array([[4]])) == ((0.0, 0.0),)
