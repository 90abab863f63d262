"""The best plans for a model on a cluster."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import overload

from trainwright.cli.plan_answer import plan_answer, save_answer
from trainwright.cli.plan_islands import ApartAnswer
from trainwright.cli.plan_tables import TablesAnswer
from trainwright.cli.strategy_answer import StrategyAnswer
from trainwright.library.islands import IslandPlans
from trainwright.library.options import options_of
from trainwright.library.plans import Plans
from trainwright.library.recommenders import TablePlans

_Fix = Mapping[str, object] | Sequence[str] | str


@overload
def plan(
    model: str | Path, cluster: str | Path, *, algorithm: str | Sequence[str], **options: object
) -> IslandPlans: ...
@overload
def plan(
    model: str | Path,
    cluster: str | Path,
    *,
    batch: int | None = None,
    seq: int | None = None,
    tokens: str | float | None = None,
    stack: str | None = None,
    precision: str | None = None,
    objective: str | None = None,
    fix: _Fix | None = None,
    top: int | None = None,
    algorithm: None = None,
    **options: object,
) -> Plans: ...
def plan(model: str | Path, cluster: str | Path, **options: object) -> Plans | IslandPlans | TablePlans:
    """The best strategies for a model on a cluster; `InfeasiblePlan` if nothing fits.

    `model` and `cluster` are named as on the command line, and options are those of `trainwright plan`, with
    `_` for `-`: `max_tp=8`, `fix={"pp": [1, 2]}`, `batch_tokens="16M"`, `price="2 $/h"`. They ask for the
    same kinds of planning. With `max_days` or `max_dollars` the plans are those of the smallest cluster, and
    `sizing` has the counts around it. With `flexible`, `flexible` has plans beyond knobs. With `algorithm`
    the answer is `IslandPlans`; of a recommender it is `TablePlans`. `report`, `figures`, `json`, `csv` and
    `save_plans` name files, which are written.
    """
    asked = options_of("plan", [model, cluster], options)
    answer = plan_answer(asked, _silent)
    save_answer(asked, answer)
    if isinstance(answer, ApartAnswer):
        return IslandPlans(answer=answer)
    if isinstance(answer, TablesAnswer):
        return TablePlans(answer=answer)
    assert isinstance(answer, StrategyAnswer)
    return Plans(found=answer)


def _silent(done: int, planned: int, name: str) -> None:
    pass
