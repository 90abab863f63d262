"""Strategies worth simulating: none whose layers do not fit, none that only looks fast."""

from tests.unit.search.test_flexible import question, setting
from trainwright.plan.strategy import Strategy
from trainwright.program.setting import Setting
from trainwright.search.findings import Findings
from trainwright.search.flexible import try_strategy
from trainwright.search.recipes import stack_room_bytes
from trainwright.search.shortlist import Shortlist


def rooms(of: Setting) -> list[tuple[float, list[tuple[float, Strategy]]]]:
    return list(Shortlist(question=question(of), findings=Findings(setting=of)).rooms())


def test_what_is_listed_first_needs_about_what_was_expected() -> None:
    of = setting(memory=1.2e9)
    step_s, strategy = next(listed for _, listed in rooms(of) if listed)[0]
    found = try_strategy(Findings(setting=of), strategy, 16)
    assert max(found.row_bytes) <= 1.2 * stack_room_bytes(of)
    assert found.step_s < 1.3 * step_s


def test_times_rise_and_no_strategy_is_listed_twice() -> None:
    found = rooms(setting())
    for _, listed in found:
        assert [step_s for step_s, _ in listed] == sorted(step_s for step_s, _ in listed)
    every = [strategy for _, listed in found for _, strategy in listed]
    assert len(set(every)) == len(every) > 0


def test_with_less_memory_the_closed_form_finds_nothing_faster() -> None:
    bounds = [bound_s for bound_s, _ in rooms(setting(memory=1.2e9))]
    assert bounds == sorted(bounds)


def test_nothing_is_listed_where_no_layer_fits() -> None:
    assert not any(listed for _, listed in rooms(setting(memory=0.02e9)))
