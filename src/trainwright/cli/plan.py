"""`trainwright plan`: the best strategies for a model on a cluster."""

import argparse

from trainwright.cli import (
    batch_options,
    cost,
    expert_imbalance,
    interruptions,
    limits,
    memory_limit,
    money,
    optimizer,
    pages,
    runs_option,
    target,
)
from trainwright.cli.knobs import LIMITED
from trainwright.cli.refusal import refuse_given


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "model", metavar="MODEL", help="a catalog name, a Hugging Face config.json, or a TOML file"
    )
    parser.add_argument("cluster", metavar="CLUSTER", help='"h100:512", "h100:512@aws-p5", or a TOML file')
    batch_options.add_arguments(parser, exact="sequences per step", ranges=True)
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
        "--precision",
        metavar="NAME",
        help="bf16, fp16, fp8, fp4 or fp32 (default: bf16 if the device has it)",
    )
    parser.add_argument("--objective", default="time", metavar="NAME", help="time, cost, energy or memory")
    parser.add_argument(
        "--fix",
        action="append",
        default=[],
        metavar="KNOB=VALUE",
        help="like pp=4, recompute=full, recompute=norm+mlp or offload_layers=40",
    )
    for knob in LIMITED:
        parser.add_argument(f"--max-{knob}", metavar="N", help=f"the largest {knob} to consider")
    memory_limit.add_arguments(parser)
    parser.add_argument("--top", default="10", metavar="N", help="plans to show (default: 10)")
    parser.add_argument(
        "--all-variants",
        action="store_true",
        help="every strategy by itself, also those that differ neither in parallel degrees nor in sharding",
    )
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
    """Search, write, and show."""
    from trainwright.cli.plan_answer import plan_answer, save_answer
    from trainwright.cli.show import Show
    from trainwright.report.files import render_json

    if options.json == "-":
        rule = "shortens the printed tables, which --json on standard output replaces"
        refuse_given(options, ("quiet",), rule, "leave out one of the two")
    with Show(patient=True) as show:
        answer = plan_answer(options, show.report_progress)
    written = save_answer(options, answer)
    if options.json == "-":
        print(render_json(answer.tree()), end="")
        return 0
    answer.show(quiet=options.quiet)
    for line in written:
        print(line)
    return 0
