"""The best plans beyond knobs: drafted layer by layer, kept if the simulation says that they fit and win."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from trainwright.plan.expand import expand
from trainwright.plan.strategy import SCHEDULES, Strategy
from trainwright.program.setting import Setting
from trainwright.search.find import Question
from trainwright.search.findings import Findings
from trainwright.search.reasons import explain
from trainwright.search.recipes import Drafts, Recipe
from trainwright.search.shortlist import Shortlist
from trainwright.search.skeletons import Freedoms
from trainwright.search.trial import Trial

_ROUNDS = 2  # of drafting with what the last simulation said of memory
_CLOSE = 0.02  # of a device's memory: a draft that is off by less is not repeated
_WORTH = 1.01  # a plan that is not faster than another by so much does not replace it
_AGREES = 1.02  # a strategy that is expected to be so far behind the best simulated one is not simulated
_ABOUT = 1.005  # the same of a draft, of which more is known
DEGREES = ("dp", "tp", "cp", "pp", "micro_batch")
_MOST_TRIALS = 5  # strategies that are simulated for each round of the closed form
_MOST_LATER = 24  # and after all rounds, as long as none has fitted


@dataclass(frozen=True, slots=True, kw_only=True)
class Flexible:
    """The best strategy by knobs, if one fits, and plans that beat it in simulation, fastest first."""

    knobs: Trial | None
    plans: tuple[Trial, ...]
    reasons: tuple[str, ...]  # of each plan
    drafted: int
    simulated: int


def find_flexible(question: Question, setting: Setting, *, most: int = 4) -> Flexible:
    """Plans that no strategy can say, for a question about time; `most` drafts are simulated."""
    findings = Findings(setting=setting)
    knobs = best_strategy(_with_passes(question), findings, patience=2)
    drafts = Drafts(batch=question.batches[0], freedoms=_allowed(question), findings=findings)
    recipes = drafts.best()
    bound_s = knobs.step_s if knobs else float("inf")
    promising = [each for each in recipes if each.expected_s * _ABOUT < bound_s]
    trials = list(tried_recipes(drafts, promising, most))
    winners = sorted(
        (each for each in trials if each.step_s * _WORTH < bound_s), key=lambda each: each.step_s
    )
    return Flexible(
        knobs=knobs,
        plans=tuple(winners),
        reasons=tuple(explain(each, knobs) for each in winners),
        drafted=len(recipes),
        simulated=len(trials),
    )


def _with_passes(question: Question) -> Question:
    """The question; of a model with several passes, only the schedule that has forwards without gradient."""
    if question.job.graph.passes == 1:
        return question
    return replace(question, fixed={**question.fixed, "schedule": (SCHEDULES.index("1f1b"),), "vpp": (1,)})


def _allowed(question: Question) -> Freedoms:
    """All freedoms, within the degrees that the question allows."""
    free = Freedoms()
    most = {
        **question.most,
        **{knob: min(own, question.most.get(knob, own)) for knob, own in free.most.items()},
    }
    fixed = {knob: question.fixed[knob] for knob in DEGREES if knob in question.fixed}
    return replace(free, most={knob: most[knob] for knob in DEGREES if knob in most}, fixed=fixed)


def tried_recipes(
    drafts: Drafts, recipes: Sequence[Recipe], most: int, rival: Trial | None = None
) -> Iterator[Trial]:
    """The best recipes simulated, those that fit; none that is expected to lose clearly."""
    best_s = rival.step_s if rival else float("inf")
    for recipe in recipes[:most]:
        if recipe.expected_s > _ABOUT * best_s:
            return
        trial = _tried(drafts, recipe)
        if trial is not None:
            best_s = min(best_s, trial.step_s)
            yield trial


def _tried(drafts: Drafts, recipe: Recipe) -> Trial | None:
    """The best trial of a skeleton, drafted anew with what simulations say of memory; None if none fits."""
    found: Trial | None = None
    margins = [0.0] * recipe.skeleton.strategy.pp
    capacity = drafts.setting.cluster.device.memory[0].usable_bytes
    draft: Recipe | None = recipe
    for _ in range(_ROUNDS):
        assert draft is not None
        trial = drafts.findings.trial(drafts.plan(draft), len(margins))
        if trial.fits and (found is None or trial.step_s < found.step_s):
            found = trial
        off = [a - b for a, b in zip(trial.row_bytes, draft.bytes_by_row, strict=True)]
        worst = max(abs(a - b) for a, b in zip(off, margins, strict=True))
        margins, before = off, draft
        draft = drafts.draft(recipe.skeleton, margins)
        if draft is None or _is_same(draft, before) or (trial.fits and worst < _CLOSE * capacity):
            break
    return found


def _is_same(one: Recipe, other: Recipe) -> bool:
    return (one.cut.counts, one.modes) == (other.cut.counts, other.modes)


def best_strategy(question: Question, findings: Findings, *, patience: int = 5) -> Trial | None:
    """The best strategy of a question in simulation: closed form and layers rank, the simulation decides.

    The closed form is asked with less and less memory, until what it then finds cannot win any more, or
    `patience` trials in a row were no better; each time some strategies are simulated, those first of which
    most is expected.
    """
    batch, best, in_vain = question.batches[0], None, 0
    pending: list[tuple[float, Strategy]] = []
    for bound_s, listed in Shortlist(question=question, findings=findings).rooms():
        if best and (bound_s > _AGREES * best.step_s or in_vain >= patience):
            break
        pending = sorted([*pending, *listed], key=lambda pair: (pair[0], str(pair[1])))
        for _ in range(_MOST_TRIALS):
            if not pending or in_vain >= patience or (best and pending[0][0] > _AGREES * best.step_s):
                break
            before, best = best, _faster(best, try_strategy(findings, pending.pop(0)[1], batch))
            in_vain = in_vain + 1 if best is before and best else 0
    for _, strategy in pending[:_MOST_LATER] if best is None else ():
        best = best or _faster(best, try_strategy(findings, strategy, batch))
    return best


def _faster(best: Trial | None, trial: Trial) -> Trial | None:
    """The trial if it fits and is the best so far."""
    return trial if trial.fits and (best is None or trial.step_s < best.step_s) else best


def try_strategy(findings: Findings, strategy: Strategy, batch: int) -> Trial:
    """A strategy simulated as its stack would run it."""
    graph, stack = findings.setting.graph, findings.setting.stack
    plan = expand(strategy, graph, batch, balanced=stack.balanced_stages)
    return findings.trial(plan, strategy.pp)
