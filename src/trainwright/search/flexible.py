"""The best plans beyond knobs: drafted layer by layer, kept if the simulation says that they fit and win."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from trainwright.cluster.types import Cluster
from trainwright.plan.expand import expand
from trainwright.plan.strategy import Strategy
from trainwright.program.setting import Setting
from trainwright.search.find import Found, Question, find_plans
from trainwright.search.reasons import explain
from trainwright.search.recipes import Drafts, Freedoms, Recipe
from trainwright.search.trial import Trial, try_plan

_ROUNDS = 3  # of drafting with what the last simulation said of memory
_CLOSE = 0.02  # of a device's memory: a draft that is off by less is not repeated
_WORTH = 1.01  # a plan that is not faster than another by so much does not replace it
_AGREES = 1.06  # a strategy that the closed form puts so far behind the best simulated one is not simulated
_ROOMS = (1.3, 1.1, 1.0, 0.9, 0.8)  # times the memory that there is, for the closed form
_DEGREES = ("dp", "tp", "cp", "pp", "micro_batch")
_MOST_TRIALS = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Flexible:
    """The best strategy by knobs, if one fits, and plans that beat it in simulation, fastest first."""

    knobs: Trial | None
    plans: tuple[Trial, ...]
    reasons: tuple[str, ...]  # of each plan
    drafted: int
    simulated: int


def find_flexible(question: Question, setting: Setting, *, most: int = 6) -> Flexible:
    """Plans that no strategy can say, for a question about time; `most` drafts are simulated."""
    batch = question.batches[0]
    knobs = best_strategy(question, setting, most=most)
    drafts = Drafts(setting=setting, batch=batch, freedoms=_allowed(question))
    recipes = drafts.best(most_splits=most)
    trials = list(tried_recipes(drafts, recipes, most, knobs))
    bound_s = knobs.step_s if knobs else float("inf")
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


def _allowed(question: Question) -> Freedoms:
    """All freedoms, within the degrees that the question allows."""
    free = Freedoms()
    most = {
        **question.most,
        **{knob: min(own, question.most.get(knob, own)) for knob, own in free.most.items()},
    }
    fixed = {knob: question.fixed[knob] for knob in _DEGREES if knob in question.fixed}
    return replace(free, most={knob: most[knob] for knob in _DEGREES if knob in most}, fixed=fixed)


def tried_recipes(
    drafts: Drafts, recipes: Sequence[Recipe], most: int, rival: Trial | None = None
) -> Iterator[Trial]:
    """The best recipes simulated, those that fit; none that is expected to lose clearly."""
    best_s = rival.step_s if rival else float("inf")
    for recipe in recipes[:most]:
        if recipe.expected_s > _AGREES * best_s:
            return
        trial = _tried(drafts, recipe)
        if trial is not None:
            best_s = min(best_s, trial.step_s)
            yield trial


def _tried(drafts: Drafts, recipe: Recipe) -> Trial | None:
    """The best trial of a skeleton, drafted anew with what simulations say of memory; None if none fits."""
    found: Trial | None = None
    margins = [0.0] * recipe.skeleton.strategy.pp
    capacity = drafts.setting.cluster.device.memory[0].capacity_bytes
    draft: Recipe | None = recipe
    for _ in range(_ROUNDS):
        assert draft is not None
        trial = try_plan(drafts.setting, drafts.plan(draft), len(margins))
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


def best_strategy(question: Question, setting: Setting, *, most: int = 4) -> Trial | None:
    """The best strategy of a question in simulation: the closed form ranks, the simulation decides.

    They are simulated in the closed form's order until `most` fit, or none can win any more; first with few
    microbatches, since what does not fit then never does.
    """
    best: Trial | None = None
    fitting = 0
    for step_s, strategy in islice(_ranked(question), _MOST_TRIALS):
        if fitting == most or (best and step_s > _AGREES * best.step_s):
            break
        if not try_strategy(setting, strategy, _few_samples(strategy, question.batches[0])).fits:
            continue
        trial = try_strategy(setting, strategy, question.batches[0])
        fitting += trial.fits
        if trial.fits and (best is None or trial.step_s < best.step_s):
            best = trial
    return best


def _few_samples(strategy: Strategy, batch: int) -> int:
    """A batch of as many microbatches as fill the pipeline."""
    return min(strategy.dp * strategy.micro_batch * 2 * strategy.pp, batch)


def _ranked(question: Question) -> Iterator[tuple[float, Strategy]]:
    """Strategies by the closed form's time, found with more memory than there is, and with less.

    The simulation counts bytes otherwise than the closed form: what fits is for it to say.
    """
    found: dict[Strategy, float] = {}
    for room in _ROOMS:
        job = replace(question.job, cluster=_with_memory(question.job.cluster, room))
        found |= dict(_distinct(find_plans(replace(question, job=job, top=256))))
    return iter(
        sorted(((step_s, each) for each, step_s in found.items()), key=lambda pair: (pair[0], str(pair[1])))
    )


def try_strategy(setting: Setting, strategy: Strategy, batch: int) -> Trial:
    """A strategy simulated as its stack would run it."""
    stack = setting.stack
    plan = expand(
        strategy, setting.graph, batch, fused=stack.attention != "unfused", balanced=stack.balanced_stages
    )
    return try_plan(setting, plan, strategy.pp)


def _distinct(found: Found) -> Iterator[tuple[Strategy, float]]:
    """The best strategies, the first of those that differ only in how state is shared or layers chunked."""
    seen: set[tuple[object, ...]] = set()
    for index in range(len(found.best)):
        each = found.best.strategies[index]
        key = (
            each.tp,
            each.sp,
            each.cp,
            each.pp,
            each.micro_batch,
            each.recompute,
            each.offload,
            each.zero // 3,
        )
        if key not in seen:
            seen.add(key)
            yield each, float(found.best.step_s[index])


def _with_memory(cluster: Cluster, room: float) -> Cluster:
    """The cluster with so many times its memory."""
    own, *others = cluster.device.memory
    memory = (replace(own, capacity_bytes=room * own.capacity_bytes), *others)
    return replace(cluster, device=replace(cluster.device, memory=memory))
