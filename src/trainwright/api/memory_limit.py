"""How much of a device's memory plans may be predicted to fill."""

from trainwright.api.subject_fields import MemoryFields
from trainwright.cost.memory_risk import DEFAULT_RISK, MemorySpread, parse_percent, parse_risk
from trainwright.errors import BadInput


def filled_share(request: MemoryFields, spread: MemorySpread) -> tuple[float, str]:
    """The share of usable memory that a plan may fill, and a note on it."""
    if request.headroom is not None:
        free = parse_percent(request.headroom, "--headroom")
        if not 0.0 <= free < 1.0:
            raise BadInput("--headroom", request.headroom, "is not a share below 100%", "write it like 8%")
        return 1.0 - free, f"Plans leave {free:.1%} of usable memory free (--headroom)"
    risk = DEFAULT_RISK if request.oom_risk is None else parse_risk(request.oom_risk, "--oom-risk")
    share = spread.filled_share(risk)
    basis = f"{spread.rows:,} measured peaks and outcomes" if spread.rows else "no measured peaks of its own"
    return share, f"OOM risk at most {risk:.1%}: plans fill at most {share:.1%} of usable memory ({basis})"
