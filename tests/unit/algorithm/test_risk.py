"""What algorithms have been measured to lose: the table that ships."""

import pytest

from trainwright.algorithm.registry import ALGORITHMS, parse_algorithm, render_algorithm
from trainwright.algorithm.risk import (
    all_risks,
    beyond_measured,
    measured_risks,
    parse_risks,
    render_risks,
    risks_like,
)
from trainwright.errors import UnknownName


def test_every_risk_that_ships_is_of_an_algorithm_there_is_and_has_an_interval_around_it() -> None:
    assert all_risks()
    for each in all_risks():
        assert each.algorithm in ALGORITHMS
        assert each.network in ("mlp", "transformer")
        assert each.low <= each.excess_loss <= each.high
        assert each.seeds >= 3
        assert render_algorithm(parse_algorithm(each.setting)).startswith(each.algorithm)


def test_risks_are_found_by_the_name_of_their_algorithm() -> None:
    assert {each.algorithm for each in measured_risks("ist")} == {"ist"}
    with pytest.raises(UnknownName, match="unheard-of"):
        measured_risks("unheard-of")


def test_another_compressor_is_another_algorithm() -> None:
    assert {each.setting for each in measured_risks("compressed by=qsgd")} == {
        "compressed by=qsgd feedback=no"
    }
    assert measured_risks("compressed by=top-k") == measured_risks("compressed")
    assert measured_risks("ef21 by=rand-k") == ()


def test_what_tells_less_than_was_measured_goes_beyond_it() -> None:
    (risk, *_) = measured_risks("compressed by=rand-k")  # share=0.1 feedback=no
    assert not beyond_measured("compressed by=rand-k share=0.1 feedback=no", risk)
    assert not beyond_measured("compressed by=rand-k share=0.2 feedback=no", risk)
    said = beyond_measured("compressed by=rand-k share=0.01 feedback=no", risk)
    assert said == "share=0.01 was not measured, but share=0.1"
    assert "feedback=yes" in beyond_measured("compressed by=rand-k share=0.1", risk)


def test_a_table_of_risks_is_read_as_it_is_written() -> None:
    assert parse_risks(render_risks(all_risks(), "One line.\nAnother.")) == all_risks()


def test_the_setting_that_differs_least_comes_first() -> None:
    for each in measured_risks("ist"):
        assert risks_like(each.setting)[0].setting == each.setting
    assert len(risks_like("ist every=7")) == len(measured_risks("ist"))
