"""The best strategies as a value of the library."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainwright.cli.answer import PlanVariant, csv_rows
from trainwright.cli.sizing import Sizing
from trainwright.cli.strategy_answer import StrategyAnswer
from trainwright.errors import InfeasiblePlan
from trainwright.library.frames import build_frame, render_html
from trainwright.plan.strategy import Strategy
from trainwright.report.summary import Summary
from trainwright.search.flexible import Flexible
from trainwright.search.recipe_comparison import RecipeComparison
from trainwright.units import render_bytes, render_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Plans:
    """The best plans, best first, each with its prediction; and what was assumed on the way.

    They differ in parallel degrees or sharding unless `all_variants` was asked for.

    It is empty only where no strategy fits and plans beyond knobs do, which `flexible` then has.
    """

    found: StrategyAnswer

    @property
    def best(self) -> Summary:
        """The first of them."""
        if not len(self):
            raise InfeasiblePlan("no strategy fits; see the plans beyond knobs in flexible")
        return self[0]

    @property
    def strategy(self) -> Strategy:
        """The strategy of the best."""
        return self.best.strategy

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed, and what predictions rest on."""
        return self.found.best.notes if self.found.best else self.found.request.notes

    @property
    def limits(self) -> tuple[str, ...]:
        """What limits the best, in words."""
        return self.found.best.limits if self.found.best else ()

    @property
    def optimizer(self) -> str | None:
        """The optimizer of the plans, as stated or taken from a published recipe; None: the stack's own."""
        chosen = self.found.request.question.job.stack.optimizer
        return chosen.name if chosen else None

    @property
    def grad_dtype(self) -> str | None:
        """The gradient dtype of the plans, as stated or taken from a recipe; None: the stack's own."""
        return self.found.request.question.job.stack.grad_dtype or None

    @property
    def published_recipe(self) -> RecipeComparison | None:
        """The nearest published recipe, compared with the best plan; None if none is close enough."""
        return self.found.best.published if self.found.best else None

    @property
    def front(self) -> tuple[Summary, ...]:
        """The Pareto front of time against memory, if `pareto` was asked for."""
        return self.found.best.front if self.found.best else ()

    @property
    def variants(self) -> tuple[tuple[PlanVariant, ...], ...]:
        """Of each plan, the strategies within 1 % of the best of its family; none with `all_variants`."""
        return self.found.best.variants if self.found.best else ()

    @property
    def sizing(self) -> Sizing | None:
        """The counts of devices around the smallest cluster, if a deadline or budget was stated."""
        return self.found.sizing

    @property
    def flexible(self) -> Flexible | None:
        """Plans beyond knobs, if they were asked for."""
        return self.found.flexible

    def __len__(self) -> int:
        return len(self.found.best.summaries) if self.found.best else 0

    def __iter__(self) -> Iterator[Summary]:
        return iter(self.found.best.summaries if self.found.best else ())

    def __getitem__(self, index: int) -> Summary:
        return (self.found.best.summaries if self.found.best else ())[index]

    def to_dict(self) -> Mapping[str, object]:
        """The tree that `trainwright plan --json` writes."""
        return self.found.tree()

    def to_dataframe(self, library: str | None = None) -> Any:
        """A row for each strategy: its knobs, predictions, and the parts of time and memory."""
        return build_frame(csv_rows(self.found.best) if self.found.best else [], library)

    def __repr__(self) -> str:
        if not len(self):
            return "Plans(0)"
        best = self.best
        return f"Plans({len(self)}, best {best.strategy}: {render_duration(best.step_s)}, MFU {best.mfu:.1%})"

    def _repr_html_(self) -> str:
        rows = [
            {
                "#": rank, "strategy": str(each.strategy), "step": render_duration(each.step_s),
                "tok/s/dev": f"{each.tokens_per_s_per_device:,.0f}", "MFU": f"{each.mfu:.1%}",
                "memory": render_bytes(each.total_bytes),
            } | ({"variants": len(self.variants[rank - 1])} if self.variants else {})
            for rank, each in enumerate(self, start=1)
        ]  # fmt: skip
        return render_html(self.notes[0], rows)
