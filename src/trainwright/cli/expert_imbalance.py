"""The option on the imbalance of experts, the same for every command that predicts."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainwright.cost.constants import Stack
    from trainwright.model.graph import Graph

OPTION = "--expert-imbalance"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The option; without it the stack's own imbalance holds, in memory alone."""
    parser.add_argument(
        OPTION, metavar="FACTOR",
        help="routed tokens of the rank with most, relative to the mean, 1 or more: in memory, and above the "
        "stack's own in the time of experts and their all-to-alls (default: the stack's, 1 to 1.1)",
    )  # fmt: skip


def imbalanced_stack(options: argparse.Namespace, stack: "Stack", graph: "Graph") -> "Stack":
    """The stack with the imbalance that the options state; an error for a model that cannot have it."""
    from dataclasses import replace

    from trainwright.cost.expert_imbalance import check_imbalance, parse_imbalance

    text = getattr(options, "expert_imbalance", None)
    if not text:
        return stack
    factor = parse_imbalance(text, OPTION)
    check_imbalance(factor, graph, OPTION)
    return replace(stack, stated_imbalance=factor)
