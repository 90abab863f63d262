"""`trainwright plan`: the best strategies for a model on a cluster."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.cli import cost, interruptions, limits, money, pages, target
from trainwright.cli.knobs import LIMITED

if TYPE_CHECKING:
    from trainwright.cli.answer import Answer
    from trainwright.cli.request import Request
    from trainwright.search.flexible import Flexible


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "model", metavar="MODEL", help="a catalog name, a Hugging Face config.json, or a TOML file"
    )
    parser.add_argument("cluster", metavar="CLUSTER", help='"h100:512", "h100:512@aws-p5", or a TOML file')
    batch = parser.add_mutually_exclusive_group()
    batch.add_argument("--batch", metavar="N", help="sequences per step")
    batch.add_argument("--batch-tokens", metavar="N", help="tokens per step, like 16M")
    batch.add_argument(
        "--batch-range",
        metavar="A:B",
        help="compare A, 2A, 4A ... B sequences per step, per token (see --critical-batch)",
    )
    parser.add_argument("--seq", metavar="N", help="tokens per sequence")
    parser.add_argument(
        "--change", action="append", default=[], metavar="RESOURCE=X",
        help="X times the cluster's compute, memory, memory-bandwidth, bandwidth, inner-bandwidth, "
        "outer-bandwidth or latency",
    )  # fmt: skip
    parser.add_argument("--stack", metavar="NAME", help="software (default: by family of device)")
    cost.add_arguments(parser)
    parser.add_argument(
        "--precision",
        metavar="NAME",
        help="bf16, fp16, fp8, fp4 or fp32 (default: bf16 if the device has it)",
    )
    parser.add_argument("--objective", default="time", metavar="NAME", help="time, cost, energy or memory")
    parser.add_argument(
        "--fix", action="append", default=[], metavar="KNOB=VALUE", help="like pp=4 or recompute=full"
    )
    for knob in LIMITED:
        parser.add_argument(f"--max-{knob}", metavar="N", help=f"the largest {knob} to consider")
    parser.add_argument("--top", default="10", metavar="N", help="strategies to show (default: 10)")
    parser.add_argument("--pareto", action="store_true", help="also the front of time against memory")
    parser.add_argument(
        "--flexible", action="store_true", help="also plans beyond knobs, where simulation says that they win"
    )
    parser.add_argument(
        "--algorithm",
        metavar="LIST",
        help='also islands that train apart and meet rarely ("diloco,ist", "local-sgd", "streaming-diloco") '
        'or tell compressed gradients in every step ("compressed by=rand-k", "power-sgd", "diana", "ef21"), '
        'with hyperparameters if you like ("diloco every=100"); with the risk to the loss as measured',
    )
    parser.add_argument(
        "--islands", metavar="N", help="how many islands (default: by the levels of the network)"
    )
    parser.add_argument(
        "--save-plans", metavar="DIR", help="a plan file for each algorithm, which simulate and run take"
    )
    parser.add_argument(
        "--json", nargs="?", const="-", metavar="FILE", help="JSON, to a file or standard output"
    )
    parser.add_argument(
        "--csv",
        metavar="FILE",
        help="the strategies as CSV; with a deadline or budget, the counts of devices",
    )
    parser.add_argument("--quiet", action="store_true", help="only the table of strategies")
    for group in (target, limits, interruptions, money, pages):
        group.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Search, then show."""
    from trainwright.cli.answer import answer_of, csv_of, json_of
    from trainwright.cli.pages import plan_page, save_pages, wanted
    from trainwright.cli.request import parse_request
    from trainwright.errors import BadInput, InfeasiblePlan
    from trainwright.model.load import load_model
    from trainwright.report.files import render_json, save_text

    if load_model(options.model).kind == "dlrm":
        from trainwright.cli import plan_tables

        return plan_tables.run(options)
    bounds = limits.parse_limits(options)
    if options.algorithm is not None:
        return _beside_algorithms(options, bounds)
    for name in ("islands", "save_plans"):
        if (given := getattr(options, name)) is not None:
            rule = "goes with --algorithm"
            raise BadInput(
                f"--{name.replace('_', '-')}", given, rule, 'state both, as in --algorithm "diloco"'
            )
    if bounds is not None:
        return _size(options, bounds)
    request = parse_request(options)
    flexible = _flexible(options, request)
    try:
        answer = answer_of(request)
    except InfeasiblePlan:
        if not flexible or not flexible.plans:
            raise
        _show_flexible(options, flexible)
        return 0
    written = save_pages(options, plan_page(answer, options.asked)) if wanted(options) else []
    tree = {**json_of(answer), **_tree(flexible)}
    if options.csv:
        save_text(Path(options.csv), csv_of(answer))
    if options.json == "-":
        print(render_json(tree), end="")
        return 0
    if options.json:
        save_text(Path(options.json), render_json(tree))
    _show(answer, quiet=options.quiet)
    for line in written:
        print(line)
    if flexible:
        _show_flexible(options, flexible)
    return 0


def _beside_algorithms(options: argparse.Namespace, bounds: limits.Limits | None) -> int:
    """Exact training beside algorithms whose islands train apart."""
    from trainwright.cli import plan_islands
    from trainwright.cli.pages import wanted
    from trainwright.errors import BadInput

    if bounds is not None or options.flexible or options.pareto or wanted(options):
        rule = "goes with one cluster and its best strategies only"
        remedy = "leave out the deadline or budget, --flexible, --pareto and pages"
        raise BadInput("--algorithm", options.algorithm, rule, remedy)
    return plan_islands.run(options)


def _size(options: argparse.Namespace, bounds: limits.Limits) -> int:
    """Find a cluster within the limits, then show it: the counts around it, and its plans as ever."""
    from trainwright.cli.answer import answer_of, json_of
    from trainwright.cli.curve import curve_csv, curve_json, curve_lines, curve_table
    from trainwright.cli.request import parse_request
    from trainwright.cli.show import Show
    from trainwright.cli.sizing import size_of
    from trainwright.report import tables
    from trainwright.report.files import render_json, save_text

    with Show(patient=True) as show:
        sizing = size_of(options, bounds, show.told)
    answer = answer_of(parse_request(options, sizing.chosen.devices))
    tree = {**json_of(answer), **curve_json(sizing)}
    if options.csv:
        save_text(Path(options.csv), curve_csv(sizing))
    if options.json == "-":
        print(render_json(tree), end="")
        return 0
    if options.json:
        save_text(Path(options.json), render_json(tree))
    console = tables.open_console()
    tables.show(console, curve_table(sizing), *curve_lines(sizing), "")
    _show(answer, quiet=options.quiet)
    return 0


def _flexible(options: argparse.Namespace, request: "Request") -> "Flexible | None":
    if not options.flexible:
        return None
    from trainwright.cli.flexible import flexible_of

    return flexible_of(request)


def _tree(flexible: "Flexible | None") -> Mapping[str, object]:
    if flexible is None:
        return {}
    from trainwright.cli.flexible import flexible_json

    return {"flexible": flexible_json(flexible)}


def _show_flexible(options: argparse.Namespace, flexible: "Flexible") -> None:
    """Plans beyond knobs; alone, as JSON too, where no strategy fits."""
    from trainwright.cli.flexible import flexible_json, show_flexible
    from trainwright.report.files import render_json
    from trainwright.units import parse_whole

    if options.json == "-":
        print(render_json({"plans": [], "flexible": flexible_json(flexible)}), end="")
        return
    show_flexible(flexible, parse_whole(options.top, "--top"))


def _show(answer: "Answer", *, quiet: bool) -> None:
    from trainwright.report import tables

    console = tables.open_console()
    if not quiet:
        tables.show(console, *answer.notes)
    tables.show(console, tables.plans_table(answer.summaries))
    if answer.front:
        tables.show(console, "Pareto front of time against memory", tables.front_table(answer.front))
    if quiet:
        return
    winner = answer.summaries[0]
    lines = [tables.indented(console, line) for line in tables.headline(winner)]
    limits = [tables.indented(console, line) for line in answer.limits]
    tables.show(console, f"Best: {winner.strategy}", *lines, "")
    tables.show(console, tables.breakdown_table(winner), tables.memory_table(winner))
    if winner.tiers:
        tables.show(console, tables.tiers_table(winner))
    tables.show(console, "What limits it", *limits, "")
    tables.show(console, tables.what_if_table(answer.what_if, winner.strategy, answer.compared))
