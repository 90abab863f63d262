"""Schedules written out in full, for pipelines small enough to draw."""

import pytest

from trainwright.errors import BadInput, UnknownName
from trainwright.plan.action import render_actions
from trainwright.plan.schedules import BY_NAME, EVERY_ROW, Schedule, build_schedule


def lines(schedule: Schedule) -> list[str]:
    return [render_actions(row) for row in schedule.rows]


def test_gpipe_runs_backwards_in_reverse() -> None:
    assert lines(build_schedule("gpipe", 2, 2)) == ["F0.0 F0.1 B0.1 B0.0", "F1.0 F1.1 B1.1 B1.0"]


def test_one_f_one_b_alternates_after_its_first_forwards() -> None:
    assert lines(build_schedule("1f1b", 2, 3)) == [
        "F0.0 F0.1 B0.0 F0.2 B0.1 B0.2",
        "F1.0 B1.0 F1.1 B1.1 F1.2 B1.2",
    ]


def test_interleaved_visits_chunks_in_groups_of_microbatches() -> None:
    schedule = build_schedule("interleaved", 2, 4, vpp=2)
    # Row 1 runs (v−1)·p = 2 forwards ahead, row 0 two more.
    assert lines(schedule) == [
        "F0.0 F0.1 F2.0 F2.1 F0.2 B2.0 F0.3 B2.1 F2.2 B0.0 F2.3 B0.1 B2.2 B2.3 B0.2 B0.3",
        "F1.0 F1.1 F3.0 B3.0 F3.1 B3.1 F1.2 B1.0 F1.3 B1.1 F3.2 B3.2 F3.3 B3.3 B1.2 B1.3",
    ]
    assert schedule.routes == ((0, 1, 0, 1),)


def test_interleaved_takes_larger_groups_if_the_last_would_be_too_small() -> None:
    # 5 microbatches in groups of 2 leave 1, in groups of 3 they leave 2.
    assert lines(build_schedule("interleaved", 2, 5))[0].startswith("F0.0 F0.1 F0.2 F2.0 F2.1 F2.2 B2.0")
    with pytest.raises(BadInput, match="leaves 1 of 5 microbatches, fewer than pp 2"):
        build_schedule("interleaved", 2, 5, group=2)
    with pytest.raises(BadInput, match="group 1: smaller than pp 2"):
        build_schedule("interleaved", 2, 4, group=1)


def test_interleaved_with_one_chunk_is_one_f_one_b() -> None:
    assert build_schedule("interleaved", 3, 5, vpp=1) == build_schedule("1f1b", 3, 5)


def test_looped_bfs_runs_every_microbatch_on_a_chunk_first() -> None:
    assert lines(build_schedule("looped-bfs", 2, 2)) == [
        "F0.0 F0.1 F2.0 F2.1 B2.0 B2.1 B0.0 B0.1",
        "F1.0 F1.1 F3.0 F3.1 B3.0 B3.1 B1.0 B1.1",
    ]


def test_zb_h1_puts_weights_off_further_down_the_pipeline() -> None:
    assert lines(build_schedule("zb-h1", 2, 3)) == [
        "F0.0 F0.1 I0.0 W0.0 F0.2 I0.1 W0.1 I0.2 W0.2",
        "F1.0 I1.0 F1.1 I1.1 W1.0 F1.2 I1.2 W1.1 W1.2",
    ]


def test_zb_v_turns_round_on_the_last_row() -> None:
    schedule = build_schedule("zb-v", 2, 3)
    assert schedule.placement == ((0,), (1,), (1,), (0,))
    assert lines(schedule) == [
        "F0.0 F0.1 F0.2 F3.0 I3.0 W3.0 F3.1 I3.1 W3.1 I0.0 W0.0 F3.2 I3.2 W3.2 I0.1 W0.1 I0.2 W0.2",
        "F1.0 F2.0 F1.1 F2.1 I2.0 W2.0 F1.2 I1.0 W1.0 F2.2 I2.1 W2.1 I1.1 I2.2 I1.2 W1.1 W2.2 W1.2",
    ]


def test_dualpipe_v_puts_forwards_beside_backwards_of_the_other_side() -> None:
    assert lines(build_schedule("dualpipe-v", 1, 3)) == [
        "F0.0 F1.0 F0.1 B1.0 F1.1 B0.0 F0.2 B1.1 F1.2 B0.1 B1.2 I0.2 W0.2"
    ]


def test_dualpipe_sends_odd_microbatches_the_other_way() -> None:
    schedule = build_schedule("dualpipe", 2, 2)
    assert schedule.placement == ((0, 1), (0, 1))
    assert [schedule.rows_of(0, microbatch) for microbatch in (0, 1, 2)] == [(0,), (1,), (0,)]
    assert lines(schedule) == ["F0.0 F1.1 B1.1 B0.0", "F0.1 F1.0 B1.0 B0.1"]


def test_chimera_merges_two_pipelines() -> None:
    # Slots of row 0, both units: F0.0 0, F3.1 3, F0.2 2, F3.3 5, B3.1 4, B3.3 6, B0.0 7, B0.2 9.
    schedule = build_schedule("chimera", 4, 4)
    assert lines(schedule)[0] == "F0.0 F0.2 F3.1 B3.1 F3.3 B3.3 B0.0 B0.2"
    assert schedule.placement == ((0, 3), (1, 2), (1, 2), (0, 3))


@pytest.mark.parametrize("name", ["chimera", "dualpipe"])
def test_pipelines_from_both_ends_need_an_even_number_of_rows(name: str) -> None:
    with pytest.raises(BadInput, match=f"{name} pp 3: microbatches meet in the middle; use an even number"):
        build_schedule(name, 3, 4)


def test_interlaced_shares_the_embedding_and_the_head_between_all_rows() -> None:
    schedule = build_schedule("interlaced", 2, 2)
    assert schedule.routes == ((EVERY_ROW, 0, 1, EVERY_ROW),)
    assert schedule.placement == ((0, 1), (0,), (1,), (0, 1))
    # Windows of row 0: | F0.0 F1.0 | F3.0 B3.0 F0.1 F1.1 | F3.1 B3.1 B1.0 | B0.0 B1.1 | B0.1 |
    assert lines(schedule) == [
        "F0.0 F1.0 F3.0 B3.0 F0.1 F1.1 F3.1 B3.1 B1.0 B0.0 B1.1 B0.1",
        "F0.0 F2.0 F3.0 B3.0 F0.1 B2.0 F2.1 F3.1 B3.1 B2.1 B0.0 B0.1",
    ]


def test_three_f_one_b_alternates_three_forwards_with_one_backward() -> None:
    rows = lines(build_schedule("3f1b", 2, 8))
    assert "N1.4 N1.2.1 F1.0 B1.0 N1.5 N1.3.1 F1.1 B1.1" in rows[1]
    assert "N0.5 N0.3.1 F0.1 B0.0 N0.6 N0.4.1 F0.2 B0.1" in rows[0]


def test_three_f_one_b_with_one_pass_is_one_f_one_b() -> None:
    assert build_schedule("3f1b", 4, 9, passes=1) == build_schedule("1f1b", 4, 9)


def test_unknown_names_and_options_are_refused() -> None:
    with pytest.raises(UnknownName, match='schedule "1f1c": no such name; did you mean "1f1b"'):
        build_schedule("1f1c", 2, 2)
    with pytest.raises(UnknownName, match='"interleaved" option "vp": no such name; did you mean "vpp"'):
        build_schedule("interleaved", 2, 2, vp=2)
    with pytest.raises(UnknownName, match='"1f1b" option "vpp": no such name'):
        build_schedule("1f1b", 2, 2, vpp=2)


@pytest.mark.parametrize("name", BY_NAME)
def test_no_schedule_is_built_for_nothing(name: str) -> None:
    with pytest.raises(BadInput, match="schedule pp 0: counts start at 1"):
        build_schedule(name, 0, 4)
    with pytest.raises(BadInput, match="schedule microbatches 0: counts start at 1"):
        build_schedule(name, 2, 0)
