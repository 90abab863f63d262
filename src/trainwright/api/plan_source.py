"""Plans as users hand them over: text, files, or what an earlier request answered."""

from typing import TYPE_CHECKING, TypeAlias, Union

from trainwright.api.fields import FilePath

if TYPE_CHECKING:
    from trainwright.api.strategy_plans import StrategyPlans
    from trainwright.plan.plan import Plan
    from trainwright.plan.strategy import Strategy
    from trainwright.report.summary import Summary

PlanSource: TypeAlias = Union[FilePath, "Strategy", "Plan", "Summary", "StrategyPlans"]
PLAN_HELP = 'a strategy ("dp8 tp4 pp2 mb1 zero1 1f1b"), a plan file, a plan of the zoo ("co-shard tp=2"), '
