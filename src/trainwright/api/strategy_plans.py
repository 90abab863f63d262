"""The best strategies of a cluster, or of the smallest one within limits."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trainwright.api.fields import render_command
from trainwright.api.frames import render_html
from trainwright.api.non_uniform import flexible_json, flexible_line, flexible_rows, flexible_table
from trainwright.api.plan_problem import PlanProblem
from trainwright.api.plan_request import PlanRequest
from trainwright.api.ranked_plans import PlanVariant, RankedPlans, ranked_rows, ranked_tree
from trainwright.api.result import ReportedResult, Rows
from trainwright.api.sizing import Sizing
from trainwright.api.sizing_tables import curve_json, curve_lines, curve_rows, curve_table
from trainwright.errors import InfeasiblePlan
from trainwright.plan.strategy import Strategy
from trainwright.report.summary import Summary
from trainwright.search.flexible import Flexible
from trainwright.search.recipe_comparison import RecipeComparison
from trainwright.units import render_bytes, render_duration

if TYPE_CHECKING:
    from trainwright.report.figures import Figure
    from trainwright.report.page import Page


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyPlans(ReportedResult, schema="plan/1"):
    """The best plans, best first, each with its prediction; and what was assumed on the way.

    They differ in parallel degrees or sharding unless `all_variants` was asked for. It is empty only where no
    strategy fits and non-uniform plans do, which `flexible` then has.
    """

    request: PlanRequest
    problem: PlanProblem  # with the optimizer state of the plans
    ranked: RankedPlans | None  # none only where non-uniform plans fit
    sizing: Sizing | None = None  # the counts of devices around the smallest cluster
    flexible: Flexible | None = None  # non-uniform plans, if they were asked for

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
        return self.ranked.notes if self.ranked else self.problem.notes

    @property
    def limits(self) -> tuple[str, ...]:
        """What limits the best, in words."""
        return self.ranked.limits if self.ranked else ()

    @property
    def optimizer(self) -> str | None:
        """The optimizer of the plans, as stated or taken from a published recipe; None: the stack's own."""
        chosen = self.problem.question.job.stack.optimizer
        return chosen.name if chosen else None

    @property
    def grad_dtype(self) -> str | None:
        """The gradient dtype of the plans, as stated or taken from a recipe; None: the stack's own."""
        return self.problem.question.job.stack.grad_dtype or None

    @property
    def published_recipe(self) -> RecipeComparison | None:
        """The nearest published recipe, compared with the best plan; None if none is close enough."""
        return self.ranked.published if self.ranked else None

    @property
    def front(self) -> tuple[Summary, ...]:
        """The Pareto front of time against memory, if `pareto` was asked for."""
        return self.ranked.front if self.ranked else ()

    @property
    def variants(self) -> tuple[tuple[PlanVariant, ...], ...]:
        """Of each plan, the strategies within 1 % of the best of its family; none with `all_variants`."""
        return self.ranked.variants if self.ranked else ()

    @property
    def _summaries(self) -> tuple[Summary, ...]:
        return self.ranked.summaries if self.ranked else ()

    def __len__(self) -> int:
        return len(self._summaries)

    def __iter__(self) -> Iterator[Summary]:
        return iter(self._summaries)

    def __getitem__(self, index: int) -> Summary:
        return self._summaries[index]

    def tree(self) -> Mapping[str, object]:
        """The tree that `trainwright plan --json` writes."""
        bare = {"anchor": self.problem.anchor, "notes": self.problem.notes, "plans": ()}
        found = ranked_tree(self.ranked) if self.ranked else bare
        curve = curve_json(self.sizing) if self.sizing else {}
        return {**found, **curve, **({"flexible": flexible_json(self.flexible)} if self.flexible else {})}

    def rows(self) -> Rows:
        """A row for each strategy: its knobs, predictions, and the parts of time and memory."""
        return ranked_rows(self.ranked) if self.ranked else []

    def csv_rows(self) -> Rows:
        """The counts of devices, if the smallest cluster was asked for; else plans, non-uniform ones too."""
        if self.sizing:
            return curve_rows(self.sizing)
        return [*self.rows(), *(flexible_rows(self.flexible) if self.flexible else [])]

    def figures(self) -> "tuple[Figure, ...]":
        """What is drawn of it."""
        from trainwright.report.plan_figures import plan_figures

        ranked = self.ranked
        return tuple(plan_figures(ranked.summaries, ranked.front, ranked.what_if)) if ranked else ()

    def page(self) -> "Page":
        """The report."""
        from trainwright.api.pages import plan_page, table_rows

        command = render_command("plan", self.request)
        page, before, after = plan_page(self.problem, self.ranked, self.figures(), command), [], []
        if self.sizing:
            before = [curve_table(self.sizing)]
            page = replace(page, answer=(*curve_lines(self.sizing), *page.answer))
        if self.flexible:
            after = [flexible_table(self.flexible, self.problem.question.top)]
            page = replace(page, answer=(*page.answer, flexible_line(self.flexible), *self.flexible.reasons))
        return replace(page, tables=(*table_rows(before), *page.tables, *table_rows(after)))

    def __repr__(self) -> str:
        if not len(self):
            return "StrategyPlans(0)"
        best = self.best
        words = f"best {best.strategy}: {render_duration(best.step_s)}, MFU {best.mfu:.1%}"
        return f"StrategyPlans({len(self)}, {words})"

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
