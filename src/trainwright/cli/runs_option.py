"""The option on measured runs, the same for every command that predicts by them."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The option."""
    parser.add_argument(
        "--runs", metavar="RUNS",
        help="anchor predictions to runs that you have measured: a table (CSV, docs/validation.md) or what "
        "trainwright calibrate --runs wrote (TOML)",
    )  # fmt: skip
