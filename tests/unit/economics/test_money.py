"""What rented and owned devices cost."""

import pytest

from trainwright.economics.money import HOURS_PER_YEAR, Ownership, usual_capital


def test_an_hour_uses_up_its_part_of_the_capital() -> None:
    # 30,000 $ are three quarters of the capital, 40,000 $ the whole; over 4 years of 8,766 h
    owned = Ownership(capital_dollars=30_000.0, network_share=0.25, years=4.0)
    assert owned.whole_dollars == pytest.approx(40_000.0)
    assert owned.dollars_per_device_hour == pytest.approx(40_000.0 / 35_064.0)


def test_a_device_used_to_its_end_has_cost_its_capital() -> None:
    owned = Ownership(capital_dollars=30_000.0, years=3.0)
    assert 3.0 * HOURS_PER_YEAR * owned.dollars_per_device_hour == pytest.approx(owned.whole_dollars)


def test_the_usual_capital_is_near_the_prices_of_servers_of_eight() -> None:
    # 12,500 h: DGX H100 300,000 $, rented at 2.99 $/h; DGX A100 199,000 $ at 1.79; DGX B200 515,000 $ at 4.99
    assert usual_capital(2.99) == pytest.approx(300_000 / 8, rel=0.01)
    assert usual_capital(1.79) == pytest.approx(199_000 / 8, rel=0.12)
    assert usual_capital(4.99) == pytest.approx(515_000 / 8, rel=0.05)
