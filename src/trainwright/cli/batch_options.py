"""Options on the global batch; `batch.py` reads them."""

import argparse


def add_arguments(parser: argparse.ArgumentParser, *, exact: str, ranges: bool = False) -> None:
    """The options; `exact` is what to say of `--batch`, and `ranges` adds `--batch-range`."""
    batch = parser.add_mutually_exclusive_group()
    batch.add_argument("--batch", metavar="N", help=exact)
    batch.add_argument(
        "--batch-tokens", metavar="N",
        help="tokens per step, like 16M (a power of two before k or M is binary: 16M is 16 x 2^20), to "
        "within --batch-tolerance: the batch that trains the most tokens per second is taken and stated",
    )  # fmt: skip
    if ranges:
        batch.add_argument(
            "--batch-range", metavar="A:B",
            help="compare about A, 2A, 4A ... B sequences per step, by time to the same loss (see "
            "--critical-batch)",
        )  # fmt: skip
    parser.add_argument(
        "--batch-tolerance", metavar="SHARE",
        help="how far a batch may be from the tokens asked for, like 5%% (default: 3%%)",
    )  # fmt: skip
