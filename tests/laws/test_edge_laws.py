"""Compute against communication where efficiency is constant: edge and slack are arithmetic."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.constant_profile import FLOPS_PER_S, LINK_BYTES_PER_S, constant_baseline
from trainwright.study.algorithm_edge import Transformer, edge, slack
from trainwright.study.layer_time import LayerTime, Sizes, layer_time, wire
from trainwright.study.switches import Switches

BASELINE = constant_baseline()
RATIO = LINK_BYTES_PER_S / FLOPS_PER_S
hidden = st.integers(256, 1 << 17)
seq = st.integers(128, 1 << 15)
batch = st.integers(1, 64)
tp = st.sampled_from([2, 4, 8, 64, 256, 1024])


def timed(h: float, s: float, b: float, n: float, switches: Switches | None = None) -> LayerTime:
    h_, s_, b_, n_ = (np.array([each], dtype=float) for each in (h, s, b, n))
    sizes = Sizes(hidden=h_, seq=s_, batch=b_, tp=n_)
    return layer_time(BASELINE, sizes, switches or Switches())


def sent(n: float) -> float:
    return float(wire("all_reduce", np.array(n, dtype=float)))


def time_edge(h: float, s: float, b: float, n: float) -> float:
    """Compute over serialized communication, for each byte that a link carries."""
    time = timed(h, s, b, n)
    return float(time.compute_s[0] / time.serialized_s[0]) * sent(n)


@given(hidden, seq, batch, tp)
def test_the_edge_is_six_widths_and_a_length_over_tp(h: int, s: int, b: int, n: int) -> None:
    # 3·(24·B·SL·H² + 4·B·SL²·H)/TP FLOPs over 4·b·B·SL·H bytes
    assert time_edge(h, s, b, n) == pytest.approx(RATIO * 3 * (6 * h + s) / (2 * n), rel=1e-9)


@given(hidden, st.sampled_from([0.25, 0.5, 1.0, 2.0]), st.integers(2, 8), tp, tp)
def test_the_edge_is_in_proportion_to_h_plus_sl_over_tp_where_they_grow_together(
    h: int, length: float, times: int, n: int, m: int
) -> None:
    s = length * h
    one, other = time_edge(h, s, 1, n), time_edge(times * h, times * s, 1, m)
    assert other / one == pytest.approx(((times * h + times * s) / m) / ((h + s) / n), rel=1e-9)


@given(hidden, seq, tp)
def test_the_edge_is_of_the_order_of_h_plus_sl_over_tp(h: int, s: int, n: int) -> None:
    order = RATIO * 3 * (h + s) / (2 * n)
    assert order * (1 - 1e-9) <= time_edge(h, s, 1, n) <= 6 * order * (1 + 1e-9)


@given(hidden, seq, batch, tp, st.integers(2, 512))
def test_the_slack_is_the_tokens_whatever_width_and_tp(h: int, s: int, b: int, n: int, replicas: int) -> None:
    # 2·24·B·SL·H²/TP FLOPs over b·12·H²/TP bytes
    time = timed(h, s, b, n, Switches(replicas=replicas))
    found = float(time.hiding_s[0] / time.overlapped_s[0]) * sent(replicas)
    assert found == pytest.approx(RATIO * 4 * s * b / 2, rel=1e-9)


@given(hidden, seq, batch, tp)
def test_arithmetic_and_time_agree(h: int, s: int, b: int, n: int) -> None:
    model = Transformer(name="m", year=2030, layers=1, hidden=h, seq=s, parameters=1.0)
    assert edge(model, n, b) * RATIO == pytest.approx(time_edge(h, s, b, n), rel=1e-9)
    assert slack(model, b) == 2 * s * b


@given(hidden, seq, batch, tp, st.floats(1.0, 16.0))
def test_faster_compute_never_lowers_a_share(h: int, s: int, b: int, n: int, faster: float) -> None:
    time = timed(h, s, b, n, Switches(interference=0.3))
    assert time.serialized_share(faster)[0] >= time.serialized_share(1.0)[0] - 1e-12
    assert time.overlapped_share(faster)[0] == pytest.approx(faster * time.overlapped_share(1.0)[0])
    assert 0 <= time.serialized_share(faster)[0] <= 1
    assert 0 <= time.communication_share(faster)[0] <= 1
