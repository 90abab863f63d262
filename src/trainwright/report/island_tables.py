"""Exact training beside algorithms whose islands train apart: a table, what it rests on, and advice."""

from collections.abc import Iterator, Sequence

from rich.table import Table

from trainwright.algorithm.risk import Risk, beyond_measured
from trainwright.report.island_account import RoundAccount
from trainwright.report.islands import ApartSummary, every_of, nearest_risk
from trainwright.report.summary import Summary
from trainwright.report.tables import table
from trainwright.units import render_bytes, render_duration, render_si

KEEPS_UP = 0.01  # of the loss: what the study calls keeping up with exact training
RISKY = 0.05  # of the loss: an interval that reaches beyond is no small risk
_AS_MANY = 0.75  # of the measured share of exact steps, and more, is no other run
_DAY_S = 86_400.0
_WORTH = 1.1  # times as fast as exact training: less is not worth another mathematics
ALONE = "exact, one island"  # which trains on the whole batch while the others are idle
_HEADERS = ("training", "step", "tok/s", "sent/step", "memory", "MFU", "days", "cost", "loss risk")


def islands_table(
    exact: Summary | None, exact_bytes: float | None, alone: Summary | None, found: Sequence[ApartSummary]
) -> Table:
    """A row for exact training, if it fits, on all islands and on one alone, and one for each algorithm."""
    rows = []
    if exact:
        sent = "?" if exact_bytes is None else render_si(exact_bytes, "B")
        rows.append(["exact", *_numbers(exact, sent), "none"])
    if alone:
        rows.append([ALONE, *_numbers(alone, render_si(0.0, "B")), "none"])
    for each in found:
        sent = render_si(each.sent_bytes_per_step, "B")
        risk = nearest_risk(each.risks, each.islands, each.every)
        shown = "unknown" if risk is None else f"{risk.excess_loss:+.1%}"
        what = f"{each.name}, {each.islands} islands, {_how_often(each)}"
        rows.append([what, *_numbers(each, sent), shown])
    return table("", _HEADERS, rows)


def _together(found: ApartSummary | RoundAccount) -> str:
    """What takes a round: its steps, or a step with what is told in it."""
    return f"a round of {found.every}" if found.every > 1 else "with what it tells"


def _how_often(found: ApartSummary) -> str:
    """When islands meet, in a few words."""
    return f"every {found.every}" if found.every > 1 else "every step"


def _numbers(found: Summary | ApartSummary, sent: str) -> list[str]:
    return [
        render_duration(found.step_s), render_si(found.tokens_per_s, "").strip(), sent,
        render_bytes(found.total_bytes), f"{found.mfu:.1%}", f"{found.budget.days:,.1f}",
        render_si(found.budget.dollars, "$"),
    ]  # fmt: skip


def render_risk(risk: Risk) -> str:
    """The loss above exact training's, relative to it, with its interval."""
    return f"{risk.excess_loss:+.1%} ({risk.low:+.1%} to {risk.high:+.1%})"


def island_lines(found: ApartSummary) -> Iterator[str]:
    """How an algorithm's islands train and meet, and what was measured of its loss."""
    yield (
        f"{found.algorithm}: {found.islands} islands of {found.island_devices} devices, each {found.strategy}"
    )
    yield (
        f"  a step of an island takes {render_duration(found.island_step_s)}, {_together(found)} "
        f"{render_duration(found.round_s)}; each sends {render_si(found.round_sent_bytes, 'B')} in it, "
        f"{render_duration(found.link_s)} on their links"
    )
    yield f"  {render_si(found.power_w, 'W')}, {found.budget.kwh:,.0f} kWh; {_beside(found)}"
    yield from (f"  {line}" for line in risk_lines(found))
    if found.exact_steps:
        yield f"  {found.exact_steps} steps of the run are exact, at exact training's speed{_rarely(found)}"


def _rarely(found: ApartSummary) -> str:
    """That exact steps are a smaller share of this run than they were where the loss was measured."""
    steps = max(found.budget.days * _DAY_S / found.step_s, 1.0)
    risk = nearest_risk(found.risks, found.islands, found.every)
    share = found.exact_steps / steps
    if risk is None or share >= _AS_MANY * risk.exact_share:
        return ""
    return f": {100 * share:.2g} % of it, where runs whose loss was measured had {risk.exact_share:.0%}"


def round_lines(found: RoundAccount) -> Iterator[str]:
    """How the islands of a simulated plan meet, and what was measured of its loss."""
    yield (
        f"{found.islands} islands, {found.algorithm}: a step of an island "
        f"{render_duration(found.island_step_s)}, {_together(found)} {render_duration(found.round_s)}, of it "
        f"{render_duration(found.link_s)} on the links between islands"
    )
    in_round = f"{render_si(found.round_sent_bytes, 'B')} in a round, " if found.every > 1 else ""
    yield f"An island sends {in_round}{render_si(found.sent_bytes_per_step, 'B')} a step"
    if found.exact_steps:
        yield (
            f"{found.exact_steps:,} steps of the run train the whole model exactly, at exact training's "
            "speed: times, days and costs here are without them, those of plan --algorithm with them"
        )
    yield from risk_lines(found)


def risk_lines(found: ApartSummary | RoundAccount) -> Iterator[str]:
    """All that was measured of an algorithm's loss, and how that differs from what is planned here."""
    for risk in found.risks:
        yield _measured(risk)
    if not found.risks:
        yield "The study has not measured what this algorithm does to the loss"
        return
    if all(found.islands > risk.workers for risk in found.risks):
        yield f"No measurement had as many workers as the {found.islands} islands here"
    if all(found.every > every_of(risk) for risk in found.risks):
        longest = max(map(every_of, found.risks))
        yield f"No measurement had rounds as long as here: at most {longest} steps, not {found.every}"


def _beside(found: ApartSummary) -> str:
    held = render_bytes(found.beside_bytes)
    return f"of the memory {held} a device are the algorithm's own"


def _measured(risk: Risk) -> str:
    points = "" if risk.accuracy_points is None else f", accuracy {risk.accuracy_points:+.1f} points"
    setting = f", {risk.setting}" if risk.setting else ""
    return (
        f"Loss {render_risk(risk)} of exact training's{points}: a small {risk.network}, "
        f"{risk.workers} workers{setting}, {risk.seeds} seeds ({risk.source})"
    )


def advice_lines(whole: Summary | None, alone: Summary | None, found: Sequence[ApartSummary]) -> list[str]:
    """What to choose: the fastest of small measured risk; and what is faster, with what it risks.

    Exact training is on all islands (`whole`), or on one of them if that is no slower.
    """
    exact = min((each for each in (alone, whole) if each), key=lambda each: each.budget.days, default=None)
    ranked = sorted(found, key=lambda each: each.budget.days)
    safe = [each for each in ranked if not is_risky(each)]
    choice: Summary | ApartSummary | None = safe[0] if safe else exact
    if exact and safe and exact.budget.days <= _WORTH * safe[0].budget.days:
        choice = exact
    lines = [_choice_line(choice, exact)] if choice else ["Nothing here is known to keep the loss."]
    if exact and exact is alone:
        lines.append(_alone_line(alone, whole))
    for each in ranked:
        if is_risky(each) and (choice is None or 1.02 * each.budget.days < choice.budget.days):
            lines.append(_warning(each))
    return [*lines, *_caveats(found)]


def is_risky(found: ApartSummary) -> bool:
    """Whether it is not known that the loss keeps up with exact training's."""
    return bool(_doubt(found))


def _doubt(found: ApartSummary) -> str:
    """Why an algorithm is not advised; nothing if it is."""
    risk = nearest_risk(found.risks, found.islands, found.every)
    if risk is None:
        return "its loss was not measured"
    if risk.excess_loss > KEEPS_UP or risk.high > RISKY:
        return f"its loss was measured at {render_risk(risk)} above exact training's"
    if beyond := beyond_measured(found.algorithm, risk):
        return beyond
    most = max(risk.workers for risk in found.risks)
    if found.islands > most:
        return f"more than {most} workers were not measured"
    longest = max(map(every_of, found.risks))
    return f"rounds of more than {longest} steps were not measured" if found.every > longest else ""


def _choice_line(choice: Summary | ApartSummary, exact: Summary | None) -> str:
    if not isinstance(choice, ApartSummary):
        where = f"on {choice.devices:,} devices ({choice.strategy})"
        return f"Advice: train exactly {where}; no algorithm of small measured risk is 10 % faster."
    times = f", {exact.budget.days / choice.budget.days:.3g} times as fast as exact training" if exact else ""
    risk = nearest_risk(choice.risks, choice.islands, choice.every)
    assert risk is not None, "what was not measured is not advised"
    return (
        f"Advice: {choice.algorithm} on {choice.islands} islands, {choice.budget.days:,.1f} days{times}; "
        f"its loss was measured at {render_risk(risk)} against exact training's, on a small {risk.network} "
        f"in {risk.steps} steps: try it on your model at a small size first."
    )


def _alone_line(alone: Summary, whole: Summary | None) -> str:
    """That links are so slow that exact training is best left to one island."""
    all_of_them = f", {whole.budget.days:,.1f} on all of them" if whole else ""
    return (
        f"Exact training takes {alone.budget.days:,.1f} days on one island of {alone.devices:,} devices"
        f"{all_of_them}: what else trains is compared with that, and the others are free for other work."
    )


def _warning(found: ApartSummary) -> str:
    return (
        f"Faster but not advised: {found.name}, {found.budget.days:,.1f} days; {_doubt(found)}. "
        "Try it on your model at a small size first."
    )


def _caveats(found: Sequence[ApartSummary]) -> list[str]:
    if not any(each.risks for each in found):
        return []
    return [
        "Loss risks were measured on small networks, for few steps, on few workers. They rank algorithms and "
        "warn; they do not tell what a large model would lose, nor after how many tokens it would catch up."
    ]
