"""Bubbles and memory of schedules against published formulas, with equal stages and free communication."""

from dataclasses import replace

import pytest

from tests.unit.plan.bubble import durations, measure, most_held
from trainwright.plan.schedules import Schedule, build_schedule

SIZES = [(2, 4), (4, 8), (4, 12), (8, 16), (5, 15)]
EVEN_SIZES = [(2, 4), (4, 8), (4, 12), (8, 16)]
# Seconds of F, I and W: equal, as in the paper's figures; then as with attention, where I is longest.
SPLIT = [(10, 10, 10), (10, 12, 9), (10, 13, 7)]


def bubble(schedule: Schedule, forward: int, inputs: int, weights: int, **special: int) -> int:
    """Seconds by which a step is longer than the work of each row: here, the same for every row."""
    seconds = {"F": forward, "N": forward, "I": inputs, "W": weights, "B": inputs + weights}
    (wait,) = set(measure(schedule, durations(schedule, seconds, **special)).waits)
    return int(wait)


@pytest.mark.parametrize(("pp", "microbatches"), SIZES)
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_the_bubble_of_gpipe_and_1f1b_is_p_minus_1_over_m(name: str, pp: int, microbatches: int) -> None:
    wait = bubble(build_schedule(name, pp, microbatches), 10, 12, 8)
    assert wait * microbatches == (pp - 1) * (microbatches * (10 + 20))


@pytest.mark.parametrize(("pp", "microbatches"), [*SIZES, (4, 4), (4, 6), (4, 11), (3, 7)])
@pytest.mark.parametrize("vpp", [2, 3])
@pytest.mark.parametrize("name", ["interleaved", "looped-bfs"])
def test_chunks_divide_the_bubble(name: str, pp: int, microbatches: int, vpp: int) -> None:
    wait = bubble(build_schedule(name, pp, microbatches, vpp=vpp), 10, 12, 8)
    work = microbatches * vpp * (10 + 20)
    assert wait * vpp * microbatches == (pp - 1) * work


@pytest.mark.parametrize(("pp", "microbatches"), [*SIZES, (4, 4)])
@pytest.mark.parametrize(("forward", "inputs", "weights"), SPLIT)
def test_weights_fill_the_bubble_of_zb_h1(
    pp: int, microbatches: int, forward: int, inputs: int, weights: int
) -> None:
    schedule = build_schedule("zb-h1", pp, microbatches)
    assert bubble(schedule, forward, inputs, weights) == (pp - 1) * (forward + inputs - weights)


@pytest.mark.parametrize(("pp", "microbatches"), SIZES)
def test_no_row_of_zb_v_waits_once_it_has_begun(pp: int, microbatches: int) -> None:
    schedule = build_schedule("zb-v", pp, microbatches)
    timing = measure(schedule, durations(schedule, {"F": 10, "I": 10, "W": 10}))
    assert timing.waits_inside == (0,) * pp
    assert timing.waits == ((pp - 1) * 10,) * pp  # the last row begins so much later


@pytest.mark.parametrize(("pp", "microbatches"), SIZES)
@pytest.mark.parametrize(("forward", "inputs", "weights"), [*SPLIT, (4, 10, 3)])
def test_unequal_phases_cost_zb_v_what_its_docstring_says(
    pp: int, microbatches: int, forward: int, inputs: int, weights: int
) -> None:
    schedule = build_schedule("zb-v", pp, microbatches)
    assert bubble(schedule, forward, inputs, weights) == (pp - 1) * max(inputs, 2 * (inputs - weights))


@pytest.mark.parametrize(("pp", "microbatches"), EVEN_SIZES)
@pytest.mark.parametrize(("forward", "inputs", "weights"), SPLIT)
def test_the_published_bubble_of_dualpipe_is_not_exceeded(
    pp: int, microbatches: int, forward: int, inputs: int, weights: int
) -> None:
    hop = forward + 2 * inputs - weights  # F&B + B − 3W with F&B = F + B and B = I + W
    both_ends = bubble(build_schedule("dualpipe", pp, microbatches), forward, inputs, weights)
    folded = bubble(build_schedule("dualpipe-v", pp, microbatches), forward, inputs, weights)
    assert both_ends <= (pp // 2 - 1) * hop
    assert folded <= (pp - 1) * hop


@pytest.mark.parametrize(("pp", "units"), [(2, 1), (4, 1), (4, 3), (8, 1), (8, 4)])
def test_chimera_waits_p_minus_2_actions(pp: int, units: int) -> None:
    schedule = build_schedule("chimera", pp, pp * units)
    assert bubble(schedule, 10, 5, 5) == (pp - 2) * 10  # p/2 − 1 forwards and as many backwards


def test_chimera_with_long_backwards_has_the_published_critical_path() -> None:
    # The paper's example: 6 rows, 6 microbatches, 6 forwards and 10 backwards on the critical path.
    schedule = build_schedule("chimera", 6, 6)
    assert measure(schedule, durations(schedule, {"F": 1, "B": 2})).length == 6 * 1 + 10 * 2


@pytest.mark.parametrize(("pp", "microbatches"), [*SIZES, (4, 3), (3, 1)])
@pytest.mark.parametrize(("embedding", "head"), [(0, 0), (3, 5), (50, 100)])
def test_sharing_the_embedding_and_the_head_adds_no_bubble(
    pp: int, microbatches: int, embedding: int, head: int
) -> None:
    shared = {"F0": embedding, "B0": embedding, f"F{pp + 1}": head, f"B{pp + 1}": 2 * head}
    schedule = build_schedule("interlaced", pp, microbatches)
    assert bubble(schedule, 10, 12, 8, **shared) == (pp - 1) * (10 + 20)


def test_interlaced_beats_a_pipeline_whose_last_stage_has_the_head() -> None:
    # 4 rows, 16 microbatches, F 10, B 20, head 20 and 40: split in 4, or all of it on the last row.
    shared = build_schedule("interlaced", 4, 16)
    plain = build_schedule("1f1b", 4, 16)
    split = durations(shared, {"F": 10, "B": 20}, F0=0, B0=0, F5=5, B5=10)
    whole = durations(plain, {"F": 10, "B": 20}, F3=30, B3=60)
    assert measure(shared, split).length == 16 * (30 + 15) + 3 * 30
    assert measure(plain, whole).length == 16 * 90 + 3 * 30


@pytest.mark.parametrize(("pp", "microbatches"), SIZES)
@pytest.mark.parametrize("passes", [1, 2, 3, 4])
def test_recycling_adds_work_but_no_bubble(pp: int, microbatches: int, passes: int) -> None:
    schedule = build_schedule("3f1b", pp, microbatches, passes=passes)
    assert bubble(schedule, 10, 12, 8) == (pp - 1) * (10 + 20)


def test_rows_hold_the_published_number_of_activations() -> None:
    # 4 rows, 12 microbatches; of chunks, where a row has two.
    held = {
        "gpipe": (12, 12, 12, 12),
        "1f1b": (4, 3, 2, 1),  # p − i
        "interleaved": (11, 9, 7, 5),  # 2(p−i−1) + (v−1)p + 1
        "looped-bfs": (24, 24, 24, 24),
        "zb-h1": (4, 4, 4, 4),  # p, as 1F1B's first
        "zb-v": (8, 8, 8, 8),  # 2p chunks
        "dualpipe": (5, 5, 5, 5),  # p + 1
        "dualpipe-v": (9, 9, 9, 9),  # 2p + 1 chunks
        "chimera": (3, 4, 4, 3),  # from p/2 + 1 to p
        "3f1b": (4, 3, 2, 1),  # only the last pass is kept
    }
    assert {name: most_held(build_schedule(name, 4, 12)) for name in held} == held


def test_interlaced_holds_half_as_much_again_as_1f1b_or_as_much() -> None:
    assert most_held(own_stages(build_schedule("interlaced", 4, 12))) == (6, 4, 3, 1)
    assert most_held(own_stages(build_schedule("interlaced", 4, 12, forward=1, backward=1))) == (4, 3, 2, 1)


def own_stages(schedule: Schedule) -> Schedule:
    """A schedule without the actions that all rows share."""
    head = schedule.stages - 1
    return replace(
        schedule, rows=tuple(tuple(each for each in row if 0 < each.stage < head) for row in schedule.rows)
    )
