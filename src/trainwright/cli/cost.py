"""The option on where operator times come from, the same for every command that predicts."""

import argparse

_USUAL = "those of CLUSTER if it is such a file, else calibrated"


def add_arguments(parser: argparse.ArgumentParser, default: str = _USUAL) -> None:
    """The option; `default` says what holds without it."""
    parser.add_argument(
        "--cost", metavar="SOURCE",
        help="operator times: roofline, calibrated, profiled:FILE or projected:FILE, as trainwright profile "
        f"writes them (default: {default})",
    )  # fmt: skip
