"""DualPipeV: one half of DualPipe, folded into a V (DeepSeek-AI, 2025, github.com/deepseek-ai/DualPipe, after
an idea of Sea AI Lab)."""

from collections.abc import Iterator

from trainwright.plan.schedules.types import Chunk, Schedule, check_counts, spell_row


def dualpipe_v(pp: int, microbatches: int) -> Schedule:
    """Stages i and 2p−1−i are on row i; a forward of one side and a backward of the other are neighbours.

    DeepSeek runs such a pair as one, in which each hides the other's communication. Here they are two
    actions, forward first, and a result is passed on when its own action ends: so from m = 2p on, the
    published bubble (p−1)(F&B + B − 3W), which is (p−1)(F + 2I − W) of a chunk if F&B takes F + B, is an
    upper bound. A row holds 2p+1 chunks' activations at most.
    """
    check_counts(pp=pp, microbatches=microbatches)
    enough = max(microbatches, 2 * pp)
    rows = (
        spell_row(v_letters(row, pp, enough), (Chunk(stage=row), Chunk(stage=2 * pp - 1 - row)), microbatches)
        for row in range(pp)
    )
    return Schedule(rows=tuple(rows), routes=((*range(pp), *reversed(range(pp))),))


def v_letters(row: int, pp: int, microbatches: int) -> Iterator[str]:
    """The eight phases of DualPipe on one row of a V: fill, alternate both sides, drain, weights last."""
    below = pp - row - 1
    yield from ["F0"] * (2 * below)
    yield from ["F0", "F1"] * (row + 1)
    yield from ["I1", "W", "F1"] * below
    yield from ["F0", "B1", "F1", "B0"] * (microbatches - 2 * pp + row + 1)
    yield from ["B1", "F1", "B0"] * below
    drain = ["1", "0"] * (row + 1)
    yield from (f"B{chunk}" for chunk in drain[: row + 1])
    yield from (f"I{chunk}" for chunk in drain[row + 1 :])
    yield from ["W", "I0"] * below
    yield from ["W"] * (row + 1)
