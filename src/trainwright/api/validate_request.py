"""The request for how well predictions agree with real runs."""

from dataclasses import KW_ONLY, dataclass

from trainwright.api.fields import FilePath, Request, option
from trainwright.api.subject_fields import COST_HELP, RUNS_HELP


@dataclass(frozen=True)
class ValidateRequest(Request):
    """How well do predictions agree with these runs?"""

    table: FilePath | None = option(
        "one run per row, columns as in docs/validation.md; without it, the catalog's published runs",
        "RUNS.csv", is_argument=True, is_file=True,
    )  # fmt: skip
    _: KW_ONLY
    cost: str | None = option(
        COST_HELP.format("calibrated; profiled times are for rows on the profiled device only"), "SOURCE",
        is_file=True,
    )  # fmt: skip
    runs: FilePath | None = option(RUNS_HELP, "RUNS", is_file=True)
