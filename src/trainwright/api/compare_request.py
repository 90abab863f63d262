"""The request for a predicted and a measured step side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from trainwright.api.fields import FilePath, Request, Whole, described, option


@dataclass(frozen=True)
class CompareRequest(Request):
    """How far is this measured step from the predicted one, and why?"""

    predicted: FilePath | Mapping[str, Any] = field(
        metadata=described("a trace that `simulate --trace` has written", "PREDICTED", is_file=True)
    )
    measured: FilePath | Mapping[str, Any] | Sequence[FilePath | Mapping[str, Any]] = field(
        metadata=described(
            "a trace that `run --record` has written, or traces of PyTorch's profiler, one for each rank",
            "MEASURED", several=True, is_file=True,
        )
    )  # fmt: skip
    _: KW_ONLY
    step: Whole | None = option("of a profiler's trace: which step (default: the last)", "N")
