"""Layers cut into stages, with as little done again as memory allows."""

import numpy as np

from trainwright.search.blocks import Costs
from trainwright.search.cuts import Rooms, best_cut


def costs(time_s: list[float], kept: list[float], work: list[float] | None = None) -> Costs:
    zeros = [0.0] * len(time_s)
    return Costs(time_s=np.array(time_s), kept_bytes=np.array(kept), work_bytes=np.array(work or zeros))


def rooms(limit: float, *held: float) -> Rooms:
    return Rooms(limit_bytes=np.full(len(held), limit), held=held)


def test_layers_of_unequal_time_give_stages_of_equal_time() -> None:
    # 4 + 1 | 1 + 1 + 1 + 1 takes 5; 4 | 1 + 1 + 1 + 1 + 1 takes 5 as well; nothing takes less.
    found = best_cut({"none": costs([4, 1, 1, 1, 1, 1], [0] * 6)}, np.zeros(6), rooms(1.0, 2, 1))
    assert found is not None
    assert max(found.time_s) == 5.0


def test_just_as_many_layers_are_done_again_as_memory_needs() -> None:
    # Four layers keep 10 each, or 2 if done again: 40 − 8·n ≤ 25 needs n = 2.
    modes = {"none": costs([3.0] * 4, [10.0] * 4), "full": costs([4.0] * 4, [2.0] * 4)}
    found = best_cut(modes, np.zeros(4), rooms(25.0, 1))
    assert found is not None
    assert sorted(found.modes) == ["full", "full", "none", "none"]
    assert found.time_s.tolist() == [14.0]
    assert found.used_bytes.tolist() == [24.0]


def test_a_stage_that_holds_more_microbatches_does_more_again() -> None:
    # Two layers each: held twice they keep 2 · (10 + 2) = 24 with one done again, held once 20 with none.
    modes = {"none": costs([3.0] * 4, [10.0] * 4), "full": costs([4.0] * 4, [2.0] * 4)}
    found = best_cut(modes, np.zeros(4), rooms(24.0, 2, 1))
    assert found is not None
    assert found.counts == (2, 2)
    assert found.modes == ("full", "none", "none", "none")


def test_a_layer_works_beside_what_it_and_those_before_it_keep() -> None:
    modes = {"full": costs([1.0, 1.0], [1.0, 1.0], [7.0, 5.0])}
    assert best_cut(modes, np.zeros(2), rooms(8.0, 1)) is not None  # 1 + 7, then 1 + 1 + 5
    assert best_cut(modes, np.zeros(2), rooms(7.9, 1)) is None
    assert best_cut(modes, np.zeros(2), rooms(10.0, 2)) is not None  # 1 + 1 of another microbatch besides
    assert best_cut(modes, np.zeros(2), rooms(9.9, 2)) is None


def test_state_that_does_not_fit_has_no_cut() -> None:
    modes = {"none": costs([1.0, 1.0], [0.0, 0.0])}
    assert best_cut(modes, np.array([5.0, 5.0]), rooms(9.0, 1)) is None
    found = best_cut(modes, np.array([5.0, 5.0]), rooms(9.0, 2, 1))
    assert found is not None
    assert found.counts == (1, 1)


def test_more_stages_than_layers_have_no_cut() -> None:
    assert best_cut({"none": costs([1.0], [0.0])}, np.zeros(1), rooms(1.0, 2, 1)) is None
