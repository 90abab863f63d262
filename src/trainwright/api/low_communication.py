"""Exact training compared with low-communication algorithms."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.algorithm.registry import short_name
from trainwright.api.fields import FilePath, render_command, value_text
from trainwright.api.frames import render_html
from trainwright.api.plan_problem import PlanProblem, build_problem
from trainwright.api.plan_request import PlanRequest
from trainwright.api.ranked_plans import RankedPlans, rank_plans, ranked_tree
from trainwright.api.result import ReportedResult, Rows
from trainwright.cost.anchor import Anchoring
from trainwright.errors import BadInput, InfeasiblePlan
from trainwright.estimate.rounds import Option
from trainwright.output_file import make_folder, save_text
from trainwright.plan.expand import count_microbatches, expand
from trainwright.plan.islands import parse_island_algorithm
from trainwright.plan.strategy import stack_strategies
from trainwright.program.crossing import crossing_bytes
from trainwright.program.lower import lower
from trainwright.program.meetings import island_counts
from trainwright.program.setting import Setting
from trainwright.report.island_tables import ALONE, advice_lines, island_lines, islands_table
from trainwright.report.islands import ApartSummary, summarize_apart
from trainwright.report.summary import Summary, summarize
from trainwright.search.check import check_constraints
from trainwright.search.islands import Run, find_apart
from trainwright.search.variants import find_winner
from trainwright.units import parse_whole, render_duration

if TYPE_CHECKING:
    from trainwright.report.figures import Figure
    from trainwright.report.page import Page

_MOST_ISLANDS = 65_536
_MOST_LOWERED = 1 << 20  # devices times microbatches: beyond it bytes of exact training are not counted


@dataclass(frozen=True, slots=True, kw_only=True)
class LowCommunicationPlans(ReportedResult, schema="low-communication-plan/1"):
    """Each algorithm with its best plan; exact training, if it fits; and what to choose."""

    request: PlanRequest
    notes: tuple[str, ...]  # what was assumed, and what predictions rest on
    ranked: RankedPlans | None  # strategies of exact training
    exact_bytes: float | None  # that an island sends in a step of exact training
    alone: Summary | None  # exact training of the whole batch on one island, the others idle
    found: tuple[ApartSummary, ...]
    refused: Mapping[str, str]  # algorithms for which nothing fits, and why
    anchor: Anchoring | None = None  # what runs of the user say of it

    @property
    def exact(self) -> Summary | None:
        """The best strategy of exact training."""
        return self.ranked.summaries[0] if self.ranked else None

    @property
    def best(self) -> Summary | ApartSummary:
        """Exact training if it fits, else the first algorithm."""
        return self.exact or self.found[0]

    @property
    def advice(self) -> list[str]:
        """What to choose, in words."""
        return advice_lines(self.exact, self.alone, self.found)

    def __len__(self) -> int:
        return len(self.found)

    def __iter__(self) -> Iterator[ApartSummary]:
        return iter(self.found)

    def __getitem__(self, index: int) -> ApartSummary:
        return self.found[index]

    def tree(self) -> Mapping[str, object]:
        """The tree of exact training, and the algorithms."""
        tree = dict(ranked_tree(self.ranked)) if self.ranked else {"notes": self.notes, "plans": ()}
        return {
            **tree, "anchor": self.anchor, "exact_sent_bytes_per_step": self.exact_bytes,
            "exact_on_one_island": self.alone, "algorithms": self.found,
            "refused": self.refused, "advice": self.advice,
        }  # fmt: skip

    def rows(self) -> Rows:
        """A row for exact training and one for each measured risk of each algorithm."""
        return _rows(self)

    def figures(self) -> "tuple[Figure, ...]":
        """What is drawn of the algorithms."""
        from trainwright.report.island_figures import island_figures

        return tuple(island_figures(self.exact, self.alone, self.found))

    def page(self) -> "Page":
        """The report."""
        from trainwright.api.pages import UNDATED, table_rows
        from trainwright.report import tables
        from trainwright.report.page import Page

        ranked = self.ranked
        shown = [islands_table(self.exact, self.exact_bytes, self.alone, self.found)]
        shown += [tables.plans_table(ranked.summaries, ranked.variant_counts)] if ranked else []
        lines = [line.strip() for each in self.found for line in island_lines(each)]
        refused = [f"{text}: {why}" for text, why in self.refused.items()]
        return Page(
            title=self.notes[0], question=("Which algorithm should train this model?", *self.notes[1:2]),
            answer=(*self.advice, *lines, *refused), figures=self.figures(), tables=table_rows(shown),
            assumptions=(*self.notes[2:], UNDATED), command=render_command("plan", self.request),
        )  # fmt: skip

    def save_plans(self, folder: FilePath) -> None:
        """Write a plan file for each algorithm, which simulate and run take."""
        make_folder(Path(folder))
        for each in self.found:
            save_text(Path(folder) / f"{each.name}.plan", each.plan)

    def __repr__(self) -> str:
        listed = ", ".join(f"{each.name} {render_duration(each.step_s)}" for each in self)
        return f"LowCommunicationPlans({listed})"

    def _repr_html_(self) -> str:
        return render_html(self.notes[0], self.rows())


def plan_low_communication(request: PlanRequest) -> LowCommunicationPlans:
    """What a request asks; raises where no algorithm and no strategy fits."""
    texts = parse_algorithms(value_text(request.algorithm))
    stated = request.islands
    islands = None if stated is None else parse_whole(stated, "--islands", most=_MOST_ISLANDS)
    problem = build_problem(request)
    exact = _exact(problem)
    problem = exact.problem if exact else problem  # islands have the optimizer state of exact training
    job = problem.question.job
    best = exact.summaries[0] if exact else None
    chosen, refused = _options(problem, texts, islands, best)
    insides = {each.job.cluster.count for each in chosen}  # devices of an island
    told = {inside: _exact_bytes(problem, exact, inside) for inside in insides}
    found = [summarize_apart(each, job, problem.terms, best, told[each.job.cluster.count]) for each in chosen]
    if not found and exact is None:
        raise InfeasiblePlan("; ".join(f"{text}: {why}" for text, why in refused.items()))
    notes = exact.notes if exact else (*problem.notes, "Exact training does not fit this cluster.")
    inside = found[0].island_devices if found else job.cluster.count // island_counts(job.cluster)[0]
    sent = told[inside] if inside in told else _exact_bytes(problem, exact, inside)
    return LowCommunicationPlans(
        request=request, notes=notes, ranked=exact, exact_bytes=sent,
        alone=_alone(problem, inside), found=tuple(found), refused=refused, anchor=problem.anchor,
    )  # fmt: skip


def _alone(problem: PlanProblem, devices: int) -> Summary | None:
    """Exact training of the whole batch on one island of so many devices; nothing if it does not fit."""
    job = problem.question.job
    inner = replace(job, cluster=replace(job.cluster, count=devices))
    question = replace(problem.question, job=inner)
    try:
        check_constraints(question)
    except BadInput:  # what is fixed is for the whole cluster
        return None
    found = find_winner(question)[1]
    if not len(found):
        return None
    return summarize(inner, stack_strategies([found.strategies[0]]), problem.terms)[0]


def _options(
    problem: PlanProblem, texts: tuple[str, ...], islands: int | None, exact: Summary | None
) -> tuple[list[Option], dict[str, str]]:
    """The best option of each algorithm; and for those without one, why."""
    found, refused = [], {}
    question = replace(problem.question, top=1, families=0)
    (batch,) = question.batches
    steps = problem.terms.tokens / (batch * question.job.seq)
    run = Run(steps=steps, exact_s=exact.step_s if exact else None)
    for text in texts:
        try:
            found.append(find_apart(question, text, islands, run))
        except InfeasiblePlan as error:
            refused[text] = str(error)
        except BadInput as error:  # like more islands than a layer has units: others may do
            if len(refused) == len(texts) - 1:
                raise
            refused[text] = str(error)
    return found, refused


def parse_algorithms(text: str) -> tuple[str, ...]:
    """The algorithms of a list with commas, each with hyperparameters if some are stated."""
    texts = tuple(" ".join(each.split()) for each in text.split(","))
    names = [short_name(parse_island_algorithm(each)) for each in texts]
    if len(set(names)) < len(names):
        raise BadInput("--algorithm", text, "names one twice", "compare its hyperparameters in two commands")
    return texts


def _exact(problem: PlanProblem) -> RankedPlans | None:
    try:
        return rank_plans(problem)
    except InfeasiblePlan:
        return None


def _exact_bytes(problem: PlanProblem, exact: RankedPlans | None, inside: int) -> float | None:
    """What leaves an island in a step of exact training, counted over its lowered plan."""
    if exact is None:
        return None
    best, job = exact.summaries[0], problem.question.job
    if job.cluster.count * count_microbatches(best.strategy, best.global_batch) > _MOST_LOWERED:
        return None
    plan = expand(
        best.strategy, job.graph, best.global_batch,
        balanced=job.stack.balanced_stages,
    )  # fmt: skip
    setting = Setting(
        graph=job.graph, cluster=job.cluster, stack=job.stack, efficiency=job.efficiency, seq=job.seq,
        precision=plan.precision,
    )  # fmt: skip
    return crossing_bytes(lower(setting, plan), inside)


_COLUMNS = (
    "name", "algorithm", "islands", "every", "strategy", "step_s", "low_s", "high_s", "tokens_per_s", "mfu",
    "sent_bytes_per_step", "total_bytes", "power_w", "days", "dollars", "kwh", "network", "workers",
    "setting", "excess_loss", "low", "high",
)  # fmt: skip


def _rows(answer: LowCommunicationPlans) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    if (best := answer.exact) is not None:
        rows.append(_row(best) | {"name": "exact", "sent_bytes_per_step": answer.exact_bytes})
    if answer.alone is not None:
        rows.append(_row(answer.alone) | {"name": ALONE, "sent_bytes_per_step": 0.0})
    for each in answer.found:
        for risk in each.risks or (None,):
            rows.append(_row(each) | ({} if risk is None else _row(risk) | {"algorithm": each.algorithm}))
    return [dict.fromkeys(_COLUMNS) | row for row in rows]


def _row(found: object) -> dict[str, object]:
    sources = (found, getattr(found, "budget", None))
    return {name: getattr(each, name) for each in sources for name in _COLUMNS if hasattr(each, name)}
