"""`trainwright plan`: the best strategies for a model on a cluster."""

import argparse

from trainwright.api.plan_request import PlanRequest
from trainwright.cli import pages
from trainwright.cli.refusal import refuse_given
from trainwright.cli.request_options import add_fields, read_request


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_fields(parser, PlanRequest)
    parser.add_argument(
        "--save-plans", metavar="DIR", help="a plan file for each algorithm, which simulate and run take"
    )
    parser.add_argument(
        "--csv",
        metavar="FILE",
        help="the strategies as CSV; with a deadline or budget, the counts of devices",
    )
    parser.add_argument("--quiet", action="store_true", help="only the table of strategies")
    pages.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Search, write, and show."""
    from trainwright.api.low_communication import LowCommunicationPlans
    from trainwright.api.plan import answer_plan
    from trainwright.cli.plan_shown import show_plans
    from trainwright.cli.show import Show

    if options.json == "-":
        rule = "shortens the printed tables, which --json on standard output replaces"
        refuse_given(options, ("quiet",), rule, "leave out one of the two")
    request = read_request(options, PlanRequest)
    if request.algorithm is None:
        refuse_given(
            options, ("save_plans",), "goes with --algorithm", 'state both, as in --algorithm "diloco"'
        )
    with Show(patient=True) as show:
        result = answer_plan(request, show.report_progress)
    written = pages.save_reports(options, result)
    if options.save_plans and isinstance(result, LowCommunicationPlans):
        result.save_plans(options.save_plans)
    if options.csv:
        result.save_csv(options.csv)
    if not pages.write_json(options, result):
        show_plans(result, quiet=options.quiet)
        print(*written, sep="\n", end="\n" if written else "")
    return 0
