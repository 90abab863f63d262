"""ZB-V: two chunks on a row in the shape of a V, and no bubble (Qi et al., 2023, arXiv 2401.10241)."""

from collections.abc import Iterator

from trainwright.plan.schedules.types import Chunk, Schedule, check_counts, spell_row


def zb_v(pp: int, microbatches: int) -> Schedule:
    """Stages i and 2p−1−i are on row i, so that the last stage's loss is where the first stage is.

    With F = I = W of a chunk, and m ≥ 2p, no row waits between its first action and its last; row i starts
    after i forwards. If W ≤ F ≤ I, the step is (p−1)·max(I, 2(I−W)) longer than a row's work. A row holds the
    activations of 2p chunks at most, as much as 1F1B's first row.
    """
    check_counts(pp=pp, microbatches=microbatches)
    enough = max(microbatches, 2 * pp - 1)
    rows = (
        spell_row(_letters(row, pp, enough), (Chunk(stage=row), Chunk(stage=2 * pp - 1 - row)), microbatches)
        for row in range(pp)
    )
    return Schedule(rows=tuple(rows), routes=((*range(pp), *reversed(range(pp))),))


def _letters(row: int, pp: int, microbatches: int) -> Iterator[str]:
    """Fill the V; alternate its two sides; drain it, weights last."""
    below = pp - row
    forwards_left = microbatches - (2 * pp - row - 1)
    yield from ["F0"] * (2 * below - 1)
    yield from ["F1", "F0"] * row
    yield from ["F1", "I1", "W"] * below
    yield from ["F0", "I0", "W", "F1", "I1", "W"] * forwards_left
    yield from ["I0", "W", "F1", "I1", "W"] * (microbatches - pp - forwards_left)
    yield from ["I0", "I1"] * row
    yield from ["I0", "W"] * below
    yield from ["W"] * (2 * row)
