"""ZB-H1: weight gradients fill the bubble within 1F1B's memory (Qi et al., 2023, arXiv 2401.10241)."""

from collections.abc import Iterator

from trainwright.plan.action import Action
from trainwright.plan.schedules.one_f_one_b import one_f_one_b
from trainwright.plan.schedules.types import Schedule


def zb_h1(pp: int, microbatches: int) -> Schedule:
    """1F1B with the weights of row i put off by i microbatches.

    Every row holds p microbatches at most, as 1F1B's first does. From m = p on, the bubble is (p−1)(F+I−W)
    if W is no longer than F and I; in general, (p−1)(F + I − min(F, I, W)).
    """
    plain = one_f_one_b(pp, microbatches)
    rows = tuple(tuple(_put_off(actions, row)) for row, actions in enumerate(plain.rows))
    return Schedule(rows=rows, routes=plain.routes)


def _put_off(actions: tuple[Action, ...], row: int) -> Iterator[Action]:
    backwards = 0
    for action in actions:
        if action.phase == "F":
            yield action
            continue
        yield action._replace(phase="I")
        if backwards >= row:
            yield Action("W", row, backwards - row)
        backwards += 1
    for each in range(max(backwards - row, 0), backwards):
        yield Action("W", row, each)
