"""The request for the best plans."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from trainwright.api.fields import Pairs, Quantity, Range, Request, Whole, option
from trainwright.api.subject_fields import BatchRangeFields, MemoryFields, SubjectFields
from trainwright.api.terms_fields import TermsFields

BOUNDED_KNOBS = ("tp", "pp", "vpp", "cp", "ep", "dp", "mb")  # that have a field max_...
_limit = partial(option, group="the smallest cluster")


@dataclass(frozen=True, kw_only=True)
class LimitFields(Request):
    """A deadline or a budget, and how many devices may be had."""

    max_days: Quantity | None = _limit("a deadline, interruptions counted, like 30", "DAYS")
    max_dollars: Quantity | None = _limit("a budget, like 5e6", "DOLLARS")
    devices_range: Range | None = _limit(
        "counts to consider, like 64..1024 (default: 1 to all)", "A..B", separator=".."
    )


@dataclass(frozen=True, kw_only=True)
class PlanRequest(TermsFields, LimitFields, MemoryFields, BatchRangeFields, SubjectFields):
    """How should this model be trained on this cluster?"""

    precision: str | None = option(
        "bf16, fp16, fp8, fp4 or fp32 (default: bf16 if the device has it)", "NAME"
    )
    objective: str | None = option("time, cost, energy or memory (default: time)", "NAME")
    fix: Pairs = option(
        "like pp=4, recompute=full, recompute=norm+mlp or offload_layers=40", "KNOB=VALUE", default=()
    )
    max_tp: Whole | None = option("the largest tp to consider", "N")
    max_pp: Whole | None = option("the largest pp to consider", "N")
    max_vpp: Whole | None = option("the largest vpp to consider", "N")
    max_cp: Whole | None = option("the largest cp to consider", "N")
    max_ep: Whole | None = option("the largest ep to consider", "N")
    max_dp: Whole | None = option("the largest dp to consider", "N")
    max_mb: Whole | None = option("the largest mb to consider", "N")
    top: Whole = option("plans to show (default: 10)", "N", default=10)
    all_variants: bool = option(
        "every strategy by itself, also those that differ neither in parallel degrees nor in sharding",
        default=False,
    )
    pareto: bool = option("also the front of time against memory", default=False)
    flexible: bool = option("also plans beyond knobs, where simulation says that they win", default=False)
    algorithm: str | Sequence[str] | None = option(
        'also islands that train apart and meet rarely ("diloco,ist", "local-sgd", "streaming-diloco") or '
        'tell compressed gradients in every step ("compressed by=rand-k", "power-sgd", "diana", "ef21"), '
        'with hyperparameters if you like ("diloco every=100"); with the risk to the loss as measured',
        "LIST", separator=",",
    )  # fmt: skip
    islands: Whole | None = option("how many islands (default: by the levels of the network)", "N")
