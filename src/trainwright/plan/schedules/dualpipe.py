"""DualPipe: microbatches from both ends of one pipeline (DeepSeek-AI, 2024, arXiv 2412.19437)."""

from trainwright.errors import BadInput
from trainwright.plan.action import Action
from trainwright.plan.schedules.dualpipe_v import v_letters
from trainwright.plan.schedules.types import Chunk, Schedule, check_counts, spell_row


def dualpipe(pp: int, microbatches: int) -> Schedule:
    """Stage i is on rows i and p−1−i, in two copies; even microbatches start on row 0, odd ones on p−1.

    It is two DualPipeV over p/2 rows that swap their second halves, with pairs as there. From m = 2p on, the
    bubble is at most (p/2−1)(F + 2I − W), and a row holds p+1 microbatches' activations at most.
    """
    check_counts(pp=pp, microbatches=microbatches)
    if pp % 2:
        raise BadInput("dualpipe pp", pp, "microbatches meet in the middle", "use an even number")
    rows = tuple(_row(row, pp, microbatches) for row in range(pp))
    return Schedule(rows=rows, routes=(tuple(range(pp)), tuple(reversed(range(pp)))))


def _row(row: int, pp: int, microbatches: int) -> tuple[Action, ...]:
    early = min(row, pp - 1 - row)
    start = 0 if row == early else 1  # the route that begins at this row's end of the pipeline
    chunks = (Chunk(stage=early, first=start, step=2), Chunk(stage=pp - 1 - early, first=1 - start, step=2))
    enough = max(-(-microbatches // 2), pp)
    return spell_row(v_letters(early, pp // 2, enough), chunks, microbatches)
