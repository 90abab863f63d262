"""Tokens to a loss, and what a large batch adds."""

import pytest

from trainwright.economics.batch import batch_charge, critical_batch_tokens
from trainwright.economics.loss import LAWS, is_fitted, law_of
from trainwright.errors import UnknownName


def test_the_loss_of_chinchilla() -> None:
    # 70 B parameters, 1.4 T tokens: 406.4 / 7e10^0.34 = 0.0835 and 410.7 / 1.4e12^0.28 = 0.1630
    assert law_of("hoffmann").loss(7e10, 1.4e12) == pytest.approx(1.69 + 0.0835 + 0.1630, abs=1e-3)
    # 482 / 7e10^0.348 = 0.0812 and 2085 / 1.4e12^0.366 = 0.0750
    assert law_of("besiroglu").loss(7e10, 1.4e12) == pytest.approx(1.82 + 0.0812 + 0.0750, abs=1e-3)


@pytest.mark.parametrize("name", LAWS)
def test_tokens_undo_the_loss(name: str) -> None:
    law = law_of(name)
    assert law.tokens(8e9, law.loss(8e9, 3e11)) == pytest.approx(3e11)


def test_the_refit_wants_twenty_tokens_per_parameter() -> None:
    # For C = 6 N D, loss is least where alpha A / N^alpha = beta B / D^beta; Besiroglu et al. find about 20.
    law = law_of("besiroglu")
    compute = 5.76e23
    sizes = [1e10 * 1.02**step for step in range(250)]
    best = min(sizes, key=lambda n: law.loss(n, compute / (6 * n)))
    assert 15 < compute / (6 * best) / best < 30


def test_an_unknown_law_suggests_the_nearest() -> None:
    with pytest.raises(UnknownName, match='did you mean "hoffmann"'):
        law_of("hofmann")


def test_the_range_of_the_fit_is_told() -> None:
    assert is_fitted(1e9, 2e10)
    assert not is_fitted(4e11, 2e10)
    assert not is_fitted(1e9, 2e13)


def test_the_critical_batch_grows_as_the_loss_falls() -> None:
    # at 2 nats: 2e8 / 2^4.762 = 2e8 / 27.13
    assert critical_batch_tokens(2.0) == pytest.approx(7.37e6, rel=0.001)
    assert critical_batch_tokens(4.0) == pytest.approx(2.717e5, rel=0.001)


def test_the_critical_batch_needs_twice_the_tokens() -> None:
    assert batch_charge(8e6, 8e6) == 2.0
    assert batch_charge(1e6, 8e6) == 1.125
