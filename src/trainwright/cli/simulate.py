"""`trainwright simulate`: one plan in detail."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.cli import (
    batch_options,
    cost,
    expert_imbalance,
    interruptions,
    money,
    optimizer,
    pages,
    runs_option,
    target,
)
from trainwright.cli.refusal import refuse_given

if TYPE_CHECKING:
    from trainwright.cli.named_plan import NamedPlan
    from trainwright.cli.outcome import Outcome
    from trainwright.cli.subject import Subject
    from trainwright.report.account import Predicted
    from trainwright.simulate.whole import Simulated

_PLACES = 16  # that are drawn
# Options on sequences, or on replicas that each hold all weights.
_NOT_OF_TABLES = ("batch_tokens", "seq", "algorithm", "islands")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "model", metavar="MODEL", help="a catalog name, a Hugging Face config.json, or a TOML file"
    )
    parser.add_argument("cluster", metavar="CLUSTER", help='"h100:512", "h100:512@aws-p5", or a TOML file')
    parser.add_argument(
        "plan",
        metavar="PLAN",
        nargs="+",
        help='a strategy ("dp8 tp4 pp2 mb1 zero1 1f1b"), a plan file, a plan of the zoo ("co-shard tp=2"), '
        "or what trainwright plan --json wrote (its best plan, with its batch, software and optimizer)",
    )
    batch_options.add_arguments(parser, exact="sequences per step (a plan file has its own)")
    parser.add_argument("--seq", metavar="N", help="tokens per sequence")
    parser.add_argument(
        "--change", action="append", default=[], metavar="RESOURCE=X",
        help="X times the cluster's compute, memory, memory-bandwidth, bandwidth, inner-bandwidth, "
        "outer-bandwidth or latency",
    )  # fmt: skip
    parser.add_argument("--stack", metavar="NAME", help="software (default: by family of device)")
    cost.add_arguments(parser)
    runs_option.add_arguments(parser)
    optimizer.add_arguments(parser)
    expert_imbalance.add_arguments(parser)
    parser.add_argument(
        "--algorithm",
        metavar="TEXT",
        help='PLAN is of one island, and islands learn by "diloco every=50", "ist", "local-sgd" or '
        '"streaming-diloco"; of a file with several, the one to take',
    )
    parser.add_argument(
        "--islands", metavar="N", help="how many islands (default: by the outermost level of the network)"
    )
    parser.add_argument("--free", action="store_true", help="also what each cause would save if it were free")
    parser.add_argument("--width", metavar="N", help="columns of the schedule (default: as the terminal)")
    parser.add_argument("--trace", metavar="FILE", help="a trace of all tasks, which Perfetto opens")
    parser.add_argument("--save-plan", metavar="FILE", help="the plan as text, which PLAN can name")
    parser.add_argument(
        "--json", nargs="?", const="-", metavar="FILE", help="JSON, to a file or standard output"
    )
    for group in (target, interruptions, money, pages):
        group.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Simulate, write and show; then raise if the plan does not fit."""
    from trainwright.report.files import render_json

    if options.json == "-":
        refuse_given(options, ("width",), "is of the schedule drawn, which JSON has not", "leave out one")
    width = _parse_width(options.width)
    outcome = outcome_of(options)
    written = save_outcome(options, outcome)
    if options.json == "-":
        print(render_json(json_of(outcome)), end="")
    else:
        _show(outcome, width, written)
    outcome.simulated.check()
    return 0


def save_outcome(options: argparse.Namespace, outcome: "Outcome") -> list[str]:
    """Write the files that the options name; a line for each that people should be told of."""
    from trainwright.cli.pages import account_page, save_pages, wanted
    from trainwright.output_file import save_text
    from trainwright.report.files import render_json
    from trainwright.report.trace import describe, save_trace

    if options.trace:
        about = describe(outcome.simulated.program, "predicted") | {"cost": " ".join(outcome.subject.basis)}
        save_trace(Path(options.trace), outcome.timeline, about | {"plan": outcome.account.plan})
    written = save_pages(options, account_page(outcome, options.asked)) if wanted(options) else []
    if options.json and options.json != "-":
        save_text(Path(options.json), render_json(json_of(outcome)))
    return written


def outcome_of(options: argparse.Namespace) -> "Outcome":
    """Simulate what the options ask about; the plan is saved first, if that is asked for."""
    from trainwright.cli.anchoring import anchor_subject
    from trainwright.cli.batch import batch_tree, parse_batch_target
    from trainwright.cli.handed import adopt_answer
    from trainwright.cli.outcome import Outcome
    from trainwright.cli.simulate_islands import apart_outcome_of, is_of_islands
    from trainwright.cli.subject import parse_subject
    from trainwright.cli.terms import parse_terms
    from trainwright.model.dlrm import is_recommender
    from trainwright.output_file import save_text
    from trainwright.plan.text import render_plan
    from trainwright.report.account import account_of

    adopt_answer(options)
    subject = parse_subject(options)
    if is_recommender(subject.graph):
        refuse_given(options, (*_NOT_OF_TABLES, "runs"), "does not apply to a recommender")
    if is_of_islands(options):
        return apart_outcome_of(options, subject)
    named, note = _parse_plan(options, subject)
    subject, anchor = anchor_subject(options, subject, (named.plan.precision,))
    priced = parse_terms(options, subject)
    if options.save_plan:
        save_text(Path(options.save_plan), render_plan(named.plan))
    simulated = _simulate(subject, named)
    account = account_of(simulated, priced.terms, closed_form=_closed_form(subject, named), free=options.free)
    if is_recommender(subject.graph):
        note += "; what is said of tokens is of samples"
    batch = named.plan.batch * named.plan.microbatches
    notes = (subject.title, note, *priced.notes((batch * subject.seq,)), *subject.basis)
    return Outcome(
        subject=subject, notes=notes, simulated=simulated, account=account,
        batch=batch_tree((batch,), parse_batch_target(options, subject)), anchor=anchor,
    )  # fmt: skip


def _parse_width(text: str | None) -> int | None:
    from trainwright.units import parse_whole

    return parse_whole(text, "--width", most=10_000) if text else None


def _parse_plan(options: argparse.Namespace, subject: "Subject") -> tuple["NamedPlan", str]:
    """The plan, and what to say of its batch."""
    from trainwright.cli.batch import check_own_batch, named_at_batch
    from trainwright.cli.named_plan import NamedPlan, check_rate, is_file, load_plan, parse_named

    text = " ".join(options.plan)
    if is_file(text):
        named = NamedPlan(plan=load_plan(Path(text)))
        own = named.plan.batch * named.plan.microbatches
        note = check_own_batch(options, subject, own, "batch x microbatches")
    else:
        named, note = named_at_batch(options, subject, text, lambda batch: parse_named(text, subject, batch))
    check_rate(named.plan, subject)
    return named, note


def _simulate(subject: "Subject", named: "NamedPlan") -> "Simulated":
    from trainwright.program.check import check
    from trainwright.program.setting import Setting
    from trainwright.simulate.whole import simulate_plan

    setting = Setting(
        graph=subject.graph, cluster=subject.cluster, stack=subject.stack, efficiency=subject.efficiency,
        seq=subject.seq,
    )  # fmt: skip
    simulated = simulate_plan(setting, named.plan)
    check(simulated.program)
    return simulated


def _closed_form(subject: "Subject", named: "NamedPlan") -> "Predicted | None":
    from trainwright.estimate.types import Job
    from trainwright.model.dlrm import is_recommender
    from trainwright.plan.zoo.table_parallel import sharding_of
    from trainwright.report.account import predict, predict_tables

    job = Job(
        graph=subject.graph, cluster=subject.cluster, stack=subject.stack, efficiency=subject.efficiency,
        seq=subject.seq, global_batch=named.plan.batch * named.plan.microbatches,
    )  # fmt: skip
    if is_recommender(subject.graph):
        sharding = sharding_of(named.plan) if named.plan.name.startswith("table-parallel") else None
        return predict_tables(job, sharding) if sharding else None
    return predict(job, named.strategy) if named.strategy else None


def json_of(outcome: "Outcome") -> Mapping[str, object]:
    """The answer as one tree of plain values."""
    from trainwright.cli.subject import cluster_json
    from trainwright.report.island_account import round_account_of

    cluster, account, stack = outcome.subject.cluster, outcome.account, outcome.subject.stack
    return {
        "model": outcome.subject.graph.name,
        "cluster": cluster_json(cluster),
        "stack": stack.name,
        "optimizer": stack.optimizer.name if stack.optimizer else None,
        "grad_dtype": stack.grad_dtype or None,
        "expert_imbalance": stack.stated_imbalance or None,
        "anchor": outcome.anchor,
        "notes": outcome.notes,
        "batch": outcome.batch,
        **({"apart": round_account_of(outcome.apart)} if outcome.apart else {}),
        **{name: getattr(account, name) for name in account.__dataclass_fields__},
    }  # fmt: skip


def _show(outcome: "Outcome", width: int | None, written: Sequence[str]) -> None:
    from trainwright.report import account_tables as shown
    from trainwright.report import tables
    from trainwright.report.drawing import render_schedule

    console, account = tables.open_console(), outcome.account
    tables.show(console, *outcome.notes, "", shown.title(account))
    lines = [*shown.account_lines(account), *_round_lines(outcome)]
    tables.show(console, *(tables.indented(console, line) for line in lines), "")
    tables.show(
        console, shown.time_table(account), shown.memory_table(account), shown.holdings_table(account)
    )
    if any(need.tiers for need in account.memory):
        tables.show(console, shown.tiers_table(account))
    tables.show(console, shown.traffic_table(account), *shown.fallback_lines(account))
    tables.show(console, shown.path_table(account), tables.indented(console, shown.path_line(account)), "")
    if account.free:
        tables.show(console, shown.free_table(account))
    print("Schedule\n")
    print(render_schedule(outcome.timeline, width or console.width, _PLACES), end="")
    for line in written:
        print(line)


def _round_lines(outcome: "Outcome") -> Sequence[str]:
    """How the islands of a plan meet, and what that risks."""
    if outcome.apart is None:
        return ()
    from trainwright.report.island_account import round_account_of
    from trainwright.report.island_tables import round_lines

    return tuple(round_lines(round_account_of(outcome.apart)))
