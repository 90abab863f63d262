"""What holds for every schedule, whatever the pipeline."""

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.plan.bubble import durations, measure
from trainwright.plan.action import PHASES, Action, parse_action, parse_actions, render_actions
from trainwright.plan.schedules import BY_NAME, Schedule, build_schedule, check

SECONDS = st.integers(min_value=1, max_value=20)


@st.composite
def schedules(draw: st.DrawFn, name: str | None = None) -> tuple[Schedule, int, int]:
    """A schedule, its microbatches and its passes."""
    name = name or draw(st.sampled_from(sorted(BY_NAME)))
    pp = draw(st.integers(min_value=1, max_value=9))
    if name in ("chimera", "dualpipe"):
        pp += pp % 2
    microbatches = draw(st.integers(min_value=1, max_value=30))
    options = {}
    if name in ("interleaved", "looped-bfs"):
        options["vpp"] = draw(st.integers(min_value=1, max_value=4))
    if name == "interlaced":
        options = {"forward": draw(SECONDS), "backward": draw(SECONDS)}
    passes = draw(st.integers(min_value=1, max_value=4)) if name == "3f1b" else 1
    if name == "3f1b":
        options["passes"] = passes
    return build_schedule(name, pp, microbatches, **options), microbatches, passes


@given(st.data())
def test_every_schedule_can_run(data: st.DataObject) -> None:
    for name in BY_NAME:
        schedule, microbatches, passes = data.draw(schedules(name), label=name)
        check(schedule, schedule.stages, microbatches, passes=passes)


@given(schedules())
def test_a_row_reads_back_as_it_was_written(drawn: tuple[Schedule, int, int]) -> None:
    for row in drawn[0].rows:
        assert parse_actions(render_actions(row)) == row


NUMBERS = st.integers(min_value=0, max_value=999_999_999)  # nine digits are read


@given(st.sampled_from(sorted(PHASES)), NUMBERS, NUMBERS, NUMBERS)
def test_an_action_reads_back_as_it_was_written(phase: str, stage: int, microbatch: int, pass_: int) -> None:
    action = Action(phase, stage, microbatch, pass_ if phase == "N" else 0)
    assert parse_action(str(action)) == action


@given(schedules(), SECONDS, SECONDS, SECONDS)
def test_a_step_is_no_shorter_than_the_way_of_one_microbatch_or_the_work_of_a_row(
    drawn: tuple[Schedule, int, int], forward: int, inputs: int, weights: int
) -> None:
    schedule, _, passes = drawn
    seconds = {"F": forward, "N": forward, "I": inputs, "W": weights, "B": inputs + weights}
    timing = measure(schedule, durations(schedule, seconds))
    assert min(timing.waits) >= 0
    assert timing.length >= schedule.stages * (passes * forward + inputs)


@given(schedules("zb-h1"), SECONDS, SECONDS, SECONDS)
def test_the_bubble_of_zb_h1_is_what_no_phase_can_fill(
    drawn: tuple[Schedule, int, int], forward: int, inputs: int, weights: int
) -> None:
    schedule, microbatches, _ = drawn
    pp = len(schedule.rows)
    if microbatches >= pp:
        timing = measure(schedule, durations(schedule, {"F": forward, "I": inputs, "W": weights}))
        hop = forward + inputs - min(forward, inputs, weights)
        assert timing.waits == ((pp - 1) * hop,) * pp


@given(schedules("interlaced"), SECONDS, SECONDS)
def test_equal_stages_give_interlaced_the_bubble_of_1f1b(
    drawn: tuple[Schedule, int, int], embedding: int, head: int
) -> None:
    schedule, _, _ = drawn
    pp = len(schedule.rows)
    shared = {"F0": embedding, "B0": embedding, f"F{pp + 1}": head, f"B{pp + 1}": head}
    timing = measure(schedule, durations(schedule, {"F": 1, "B": 1}, **shared))
    assert timing.waits == ((pp - 1) * 2,) * pp
