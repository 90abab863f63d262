"""The smallest cluster that meets a deadline or a budget, and those around it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite

from trainwright.api.limits import Limits, device_counts
from trainwright.api.plan_problem import UnbatchedProblem, build_problem, build_unbatched
from trainwright.api.plan_request import PlanRequest
from trainwright.errors import InfeasiblePlan, TrainwrightError
from trainwright.model.totals import model_flops
from trainwright.plan.strategy import PRECISIONS
from trainwright.report.summary import Summary, summarize
from trainwright.search.batch_choice import NoBatch
from trainwright.search.batch_limit import batch_limit
from trainwright.search.check import check_constraints
from trainwright.search.miss import nearest_miss
from trainwright.search.recipe_search import find_recipe_winner
from trainwright.units import render_si

_BETWEEN = (5, 6, 7)  # quarters of the count below the smallest that meets the limits, tried in turn
_BEYOND = 3  # larger clusters that are looked at, where only a deadline is given

ReportProgress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """The best plan at each count of devices that has one, by count; some are within the limits.

    `remarks` say which counts the batch limits, or cannot use it, by count.
    """

    limits: Limits
    curve: tuple[Summary, ...]
    remarks: Mapping[int, str]

    @property
    def within(self) -> tuple[Summary, ...]:
        """Those within the limits, by count."""
        return tuple(each for each in self.curve if meets(self.limits, each))

    @property
    def smallest(self) -> Summary:
        """The one within the limits that has the fewest devices."""
        return self.within[0]

    @property
    def fastest(self) -> Summary:
        """The one within the limits that ends first."""
        return min(self.within, key=lambda each: each.budget.days)

    @property
    def chosen(self) -> Summary:
        """The smallest; with a budget alone, which one device may meet in a hundred years, the fastest."""
        return self.smallest if self.limits.max_days < inf else self.fastest


def meets(limits: Limits, summary: Summary) -> bool:
    """Whether a run ends in time and within the budget."""
    return _excess(limits, summary) <= 1.0


def _excess(limits: Limits, summary: Summary) -> float:
    """How many times too long or too dear a run is, the worse of the two."""
    days, dollars = summary.budget.days, summary.budget.dollars
    return max(days / limits.max_days, dollars / limits.max_dollars) if isfinite(days) else inf


def size_of(request: PlanRequest, limits: Limits, report_progress: ReportProgress) -> Sizing:
    """Search every count in turn; InfeasiblePlan if none is within the limits."""
    largest = build_unbatched(request, limits.most)
    node = largest.question.job.cluster.node_size
    counts = [
        count for count in device_counts(limits, node)
        if count == limits.most or _ideal_days(largest, count) <= limits.max_days
    ]  # fmt: skip
    found: dict[int, Summary] = {}
    remarks: dict[int, str] = {}
    for done, count in enumerate(counts):
        report_progress(done, len(counts), f"{count} devices")
        found |= _best(request, count, remarks, is_last=count == limits.most and not found)
        met = sum(meets(limits, each) for each in found.values())
        if met > _BEYOND and limits.max_dollars == inf:
            break
    for count in _closer(found, limits, node):
        report_progress(len(counts) - 1, len(counts), f"{count} devices")
        found |= _best(request, count, remarks)
        if count in found and meets(limits, found[count]):
            break
    curve = tuple(found[count] for count in sorted(found))
    sizing = Sizing(limits=limits, curve=curve, remarks=dict(sorted(remarks.items())))
    if not sizing.within:
        raise _miss(largest, limits, sizing.curve)
    return sizing


def _best(
    request: PlanRequest, count: int, remarks: dict[int, str], *, is_last: bool = False
) -> dict[int, Summary]:
    """The best plan on so many devices, or nothing where none is legal or fits; the last hope tells why.

    What is to be said of the batch at this count is added to the remarks.
    """
    try:
        problem = build_problem(request, count)
        question = problem.question
        check_constraints(question)
        search, best = find_recipe_winner(question)
        question, found = search.question, search.found
    except TrainwrightError as error:
        if is_last:
            raise
        if isinstance(error, NoBatch):
            remarks[count] = str(error)
        return {}
    if not len(best):
        if is_last:
            raise nearest_miss(question, found)
        return {}
    if limited := batch_limit(question, best):
        remarks[count] = str(limited)
    job = replace(question.job, global_batch=best.global_batch)
    return {count: summarize(job, best.strategies, problem.terms)[0]}


def _ideal_days(problem: UnbatchedProblem, count: int) -> float:
    """Days if every device ran at its peak on what a causal mask leaves: no plan on so many is faster."""
    job = problem.question.job
    flops = model_flops(job.graph, 1, job.seq, causal=True) / job.seq * problem.priced.terms.tokens
    peak = max(job.cluster.device.peak(PRECISIONS[index]) for index in problem.question.fixed["precision"])
    return flops / (count * peak) / 86400.0


def _closer(found: Mapping[int, Summary], limits: Limits, node: int) -> Iterator[int]:
    """Counts between the smallest within the limits and the one below it, as whole nodes."""
    met = [count for count in sorted(found) if meets(limits, found[count])]
    below = [count for count in sorted(found) if met and count < met[0]]
    if not below or below[-1] < node:
        return
    for quarters in _BETWEEN:
        count = below[-1] * quarters // 4 // node * node
        if below[-1] < count < met[0]:
            yield count


def _miss(problem: UnbatchedProblem, limits: Limits, curve: Sequence[Summary]) -> InfeasiblePlan:
    """The error of limits that no count meets: the count that comes nearest, and what it needs."""
    job, nearest = problem.question.job, min(curve, key=lambda each: _excess(limits, each))
    budget = nearest.budget
    needs = f"{budget.days:,.1f} days and {budget.dollars:,.0f} $" if isfinite(budget.days) else "for ever"
    more = "take more devices, " if nearest is curve[-1] and budget.days > limits.max_days else ""
    return InfeasiblePlan(
        f"{job.graph.name} on {limits.least} to {limits.most} {job.cluster.device.name}: no count trains "
        f"{render_si(budget.tokens, 'tokens')} within {limits}; the nearest miss, {nearest.devices} devices, "
        f"needs {needs}; {more}allow that much, or train on fewer tokens",
        nearest=str(nearest.strategy),
    )
