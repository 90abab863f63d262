"""The request for constants refined by measurements."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field

from trainwright.api.fields import FilePath, Request, described, option


@dataclass(frozen=True)
class CalibrateRequest(Request):
    """What do these measurements correct?"""

    cluster: FilePath = field(
        metadata=described('what was traced, or ran: "h100:8", or a TOML file', "CLUSTER", is_file=True)
    )
    _: KW_ONLY
    traces: Sequence[FilePath] = option(
        "traces that torch.profiler has written with record_shapes=True: refine efficiencies", "TRACE",
        default=(), flag="--from", either="measured", several=True, is_file=True,
    )  # fmt: skip
    runs: FilePath | None = option(
        "runs with step_time_s or memory_gib, columns as in docs/validation.md: correct the level of "
        "predictions (docs/anchoring.md)", "RUNS.csv", either="measured", is_file=True,
    )  # fmt: skip
