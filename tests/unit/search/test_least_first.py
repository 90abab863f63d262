"""Waves of rows by a lower bound of their scores."""

import numpy as np
import pytest

from trainwright.search import least_first
from trainwright.search.least_first import LeastFirst


def test_the_least_come_first_and_those_beyond_the_limit_never(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(least_first, "_FIRST", 2)
    waves = LeastFirst(np.array([5.0, 1.0, 4.0, 2.0, 9.0, 3.0]))
    assert waves.next(np.inf).tolist() == [1, 3]
    assert waves.next(4.0).tolist() == [2, 5]  # 5 and 9 are beyond the limit
    assert waves.next(np.inf).tolist() == []


def test_waves_grow_until_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(least_first, "_FIRST", 2)
    waves = LeastFirst(np.arange(20.0)[::-1])
    assert [len(waves.next(np.inf)) for _ in range(4)] == [2, 8, 10, 0]


def test_of_nothing_there_is_no_wave() -> None:
    assert len(LeastFirst(np.zeros(0)).next(np.inf)) == 0
