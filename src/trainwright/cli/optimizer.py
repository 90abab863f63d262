"""The options on the optimizer and its state, the same for every command that predicts."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainwright.cost.constants import Stack

OPTIONS = ("--optimizer", "--grad-dtype")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options; without them the stack's own AdamW and gradients hold."""
    parser.add_argument(
        "--optimizer", metavar="NAME",
        help="adamw, adamw-mu-bf16, adamw-bf16, adamw-8bit, precision-aware, precision-aware-bf16, "
        "precision-aware-fp8, muon, adafactor, sgd or lion, of those that the stack has (default: the "
        "stack's AdamW; plan takes a published recipe's where that is faster)",
    )  # fmt: skip
    parser.add_argument(
        "--grad-dtype", metavar="NAME",
        help="of gradients as accumulated and reduced: fp32 or bf16 (default: the stack's; plan takes a "
        "published recipe's where that is faster)",
    )  # fmt: skip


def stated_stack(options: argparse.Namespace, stack: "Stack") -> "Stack":
    """The stack with what the options state of its optimizer; one line on what it has if it lacks that."""
    from trainwright.cost.chosen_optimizer import check_optimizer, with_optimizer

    optimizer = getattr(options, "optimizer", None) or ""
    grad_dtype = getattr(options, "grad_dtype", None) or ""
    check_optimizer(stack.capability, optimizer, grad_dtype, OPTIONS)
    return with_optimizer(stack, optimizer, grad_dtype)
