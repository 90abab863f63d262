"""What a step holds in memory, by hand."""

from tests.tables import Entry, Held, build_table
from trainwright.program.table import CATEGORIES
from trainwright.simulate.memory import curve, holdings, peaks
from trainwright.simulate.simulate import simulate
from trainwright.simulate.timeline import Timeline

WEIGHTS, ACTIVATIONS = CATEGORIES.index("weights"), CATEGORIES.index("activations")


def three_seconds(*buffers: Held) -> Timeline:
    """Tasks 0, 1, 2 of one second each, in a row."""
    entries = [Entry(seconds=1.0, label=f"op{each} F") for each in range(3)]
    return simulate(build_table(entries, buffers=buffers))


def test_a_buffer_is_held_from_the_start_of_its_task_to_the_end_of_its_last_reader() -> None:
    held = curve(three_seconds(Held(size=4.0, start=0, readers=[1, 0])), 0)
    assert held.time_s.tolist() == [0.0, 2.0]
    assert held.category_bytes[ACTIVATIONS].tolist() == [4.0, 0.0]


def test_a_buffer_without_readers_is_never_freed() -> None:
    held = curve(three_seconds(Held(size=4.0, start=1)), 0)
    assert held.time_s.tolist() == [0.0, 1.0]
    assert held.category_bytes[ACTIVATIONS].tolist() == [0.0, 4.0]


def test_what_is_freed_makes_room_for_what_is_allocated_at_that_time() -> None:
    # At 1 s the 4 bytes go and 3 come: the peak is 4, not 7.
    found = peaks(three_seconds(Held(size=4.0, start=0, readers=[0]), Held(size=3.0, start=1, readers=[1])))
    assert found.peak_bytes.tolist() == [4.0]
    assert found.peak_s.tolist() == [0.0]


def test_a_peak_says_when_and_what() -> None:
    # 10 bytes of weights all the time; 2 bytes from 0 to 3 s and 5 from 1 to 2 s: 17 at 1 s.
    timeline = three_seconds(
        Held(size=10.0, category="weights"),
        Held(size=2.0, start=0, readers=[2]),
        Held(size=5.0, start=1, readers=[1]),
    )
    found = peaks(timeline)
    assert (found.peak_bytes[0], found.peak_s[0]) == (17.0, 1.0)
    assert found.category_bytes[0, [WEIGHTS, ACTIVATIONS]].tolist() == [10.0, 7.0]
    named = [(each.label, each.category, each.held_bytes) for each in holdings(timeline, 0)]
    assert named == [
        ("before the step", "weights", 10.0),
        ("op1 F", "activations", 5.0),
        ("op0 F", "activations", 2.0),
    ]


def test_holdings_of_one_label_are_one() -> None:
    timeline = three_seconds(Held(size=1.0, start=0), Held(size=2.0, start=0))
    (held,) = holdings(timeline, 0)
    assert (held.held_bytes, held.buffers) == (3.0, 2)


def test_a_place_that_holds_nothing_has_no_peak() -> None:
    found = peaks(three_seconds())
    assert (found.peak_bytes[0], found.peak_s[0]) == (0.0, 0.0)
    assert holdings(three_seconds(), 0) == ()
