import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch")

import torch

from trainwright.errors import BadInput
from trainwright.runtime.samples import Samples, build_microbatches, permuted
from trainwright.runtime.tokens import Tokens


def counted(count: int = 101, **changes: int) -> Samples:
    """Tokens 0, 1, 2 ... in windows of 10: 10 of them, of which one is held out."""
    tokens = Tokens(name="counted", values=np.arange(count))
    return Samples(tokens=tokens, vocab=count, **{"seq": 10, "batch": 3, **changes})


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64, 100])
def test_a_permutation_reaches_every_place_once(count: int) -> None:
    assert sorted(permuted(place, count, b"key") for place in range(count)) == list(range(count))


def test_every_window_is_used_once_in_an_epoch_and_none_that_is_held_out() -> None:
    samples = counted()
    starts = [int(row[0]) for step in range(3) for row in samples.step(step)]
    assert sorted(starts) == list(range(0, 90, 10))
    again = [int(row[0]) for step in range(3, 6) for row in samples.step(step)]
    assert sorted(again) == sorted(starts)
    assert again != starts


def test_a_row_is_a_window_and_the_token_after_it() -> None:
    row = counted().step(0)[0]
    assert row.tolist() == list(range(row[0], row[0] + 11))


def test_a_window_of_two_sequences_is_twice_as_long() -> None:
    assert counted(sequences=2).step(0).shape == (3, 21)
    with pytest.raises(BadInput, match=r"has 30 tokens, too few for samples of 20; use .* --seq 7 or less"):
        counted(30, sequences=2)


def test_the_order_depends_on_the_seed_and_the_number_alone() -> None:
    whole = np.concatenate([counted(batch=2).step(step) for step in range(3)])
    assert (whole == counted(batch=6).step(0)).all()
    assert not (whole == counted(batch=6, seed=1).step(0)).all()


def test_the_tail_is_for_evaluation() -> None:
    rows = counted().evaluation(0)
    assert rows is not None
    assert rows[:, 0].tolist() == [90]
    assert counted().evaluation(1) is None


def test_too_short_a_file_is_refused() -> None:
    with pytest.raises(BadInput, match=r"has 12 tokens, too few for samples of 10; use .* --seq 5 or less"):
        counted(12)


def test_a_token_that_the_model_does_not_know_is_found_when_it_is_read() -> None:
    samples = Samples(tokens=Tokens(name="counted", values=np.arange(101)), vocab=50, seq=10, batch=9)
    with pytest.raises(BadInput, match="and the model's vocabulary is 50"):
        samples.step(0)


def test_microbatches_ask_for_the_next_token_and_do_not_count_what_is_filled_up() -> None:
    rows = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    first, second = build_microbatches(rows, 2, 2, "head/loss", torch.device("cpu"))
    assert first.given["input/tokens"].tolist() == [[1, 2], [4, 5]]
    assert first.targets["head/loss"].tolist() == [[2, 3], [5, 6]]
    assert second.targets["head/loss"].tolist() == [[8, 9], [-100, -100]]
