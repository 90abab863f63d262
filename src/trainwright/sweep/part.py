"""One part of a dataset, made from its number alone: wherever it is made, its bytes are the same."""

from dataclasses import dataclass

from trainwright.errors import TrainwrightError
from trainwright.search.find import space_of
from trainwright.search.space import count_strategies
from trainwright.sweep.evaluate import Evaluator
from trainwright.sweep.parquet import encode
from trainwright.sweep.points import points
from trainwright.sweep.ready import build_ready, structure_axes
from trainwright.sweep.types import Sweep

_PAIRS = {"best": 1 << 20, "all": 1 << 18}  # of cluster and strategy in a part
_PLANNED = 16  # points of a part whose strategies are searched as plan does it
_MOST_POINTS = 1 << 16
_LEAST_PARTS = 16  # unless they would be of fewer pairs than
_FEWEST_PAIRS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """The file of a part, and its rows."""

    content: bytes
    rows: int


class Maker:
    """Makes parts of a sweep, one after another."""

    def __init__(self, sweep: Sweep, points_per_part: int) -> None:
        self._evaluator = Evaluator(sweep)
        self._size = points_per_part

    def make(self, number: int) -> Made:
        """The part of this number."""
        start = number * self._size
        content, rows = encode(self._evaluator.sweep, self._evaluator.rows(start, start + self._size))
        return Made(content=content, rows=rows)


def points_per_part(sweep: Sweep) -> int:
    """How many points a part has: as stated, or so many that it takes seconds."""
    if sweep.points_per_chunk:
        return sweep.points_per_chunk
    if sweep.search == "plan":
        return _PLANNED
    first = points(sweep, 0, 1)
    structure = structure_axes(sweep)
    try:
        chosen = {axis.name: int(first.chosen[axis.name][0]) if len(first) else 0 for axis in structure}
        question = build_ready(sweep, chosen).question
        size = count_strategies(space_of(question, question.batches[0]))
    except TrainwrightError:  # of the first point there is none; of others there may be
        size = 1024
    even = -(-len(sweep) // _LEAST_PARTS)  # so that all cores have something to do
    return max(min(_PAIRS[sweep.rows] // size, _MOST_POINTS, max(even, _FEWEST_PAIRS // size)), 1)
