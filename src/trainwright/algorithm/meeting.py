"""When all workers of an algorithm have met, so that fewer or more of them can go on from there."""

from trainwright.algorithm.diloco import DiLoCo
from trainwright.algorithm.ist import Ist
from trainwright.algorithm.local_sgd import LocalSgd
from trainwright.algorithm.protocol import Algorithm, Seat
from trainwright.algorithm.streaming import StreamingDiLoCo


def round_steps(algorithm: Algorithm) -> int:
    """After how many steps workers begin to tell the same again: 1 if they tell something in each."""
    return int(getattr(algorithm, "every", 1))


def meets(algorithm: Algorithm, seat: Seat, step: int) -> bool:
    """Whether a run can be kept after a step: no worker has learned what others have not been told.

    Streaming DiLoCo has no such step; it is kept once in a round.
    """
    if seat.workers == 1 or step + 1 == seat.steps:
        return True
    if isinstance(algorithm, LocalSgd):
        return step < algorithm.exact or algorithm.ends_round(step, seat)
    if isinstance(algorithm, DiLoCo):
        return algorithm.ends_round(step, seat)
    if isinstance(algorithm, StreamingDiLoCo):
        return (step + 1) % algorithm.every == 0
    if isinstance(algorithm, Ist):
        rounds = algorithm.rounds(seat.steps)
        return rounds.phase(step) != "apart" or rounds.ends(step)
    return True


def survives(algorithm: Algorithm) -> bool:
    """Whether the workers that are left can go on when one is gone, without starting anew."""
    return isinstance(algorithm, (LocalSgd, DiLoCo, StreamingDiLoCo, Ist))
