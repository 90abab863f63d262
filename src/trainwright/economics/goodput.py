"""The share of time in which a run moves forward, on devices that fail.

A cluster of N devices that each fail λ times a day fails every M = 1 / (λ N) days. A run writes a checkpoint,
which takes C, after every τ of work; a failure loses what was done since, and R passes until work goes on.
With failures that come at random (a Poisson process, also while writing and restarting), τ of work take

    W = M exp(R / M) (exp((τ + C) / M) - 1)        (Daly 2006)

The τ that makes τ / W the largest is close to Daly's sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + C / 18M) - C for
C < 2M, and M beyond; its first term is Young's, of 1974. The whole job waits for one device, so spares that
stand ready shorten R and change nothing else; writing is waited for.

J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974.
J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22(3), 2006.
"""

from dataclasses import dataclass
from math import exp, expm1, inf, sqrt
from statistics import NormalDist

DAY_S = 86400.0
_MOST_EXPONENT = 500.0  # beyond it nothing is ever finished

# Llama 3 405B, 54 days on 16,384 H100 (Dubey et al. 2024, arXiv 2407.21783, section 3.3.4): 466
# interruptions, of which 419 unexpected and 47 planned. Kokolis et al. 2024 (arXiv 2410.21680) report 6.5 and
# 2.3 failures in 1,000 days of a node of 8 A100, which is 8.1e-4 and 2.9e-4 per device.
FAILURES_PER_DEVICE_DAY = 419 / (54 * 16384)
PLANNED_PER_DAY = 47 / 54

# MegaScale (Jiang et al. 2024, arXiv 2402.15627) finds and diagnoses a failure in under 10 minutes on
# average, and has caught up with the work lost within 15. Kokolis et al. assume 5 minutes to start again. We
# take half of the bound for the first. Llama 3 states neither.
DETECTION_S = 300.0
RESTART_S = 300.0

# Llama 3's storage sustains 2 TB/s (section 3.3.1): 1 GB/s for each of 2,048 nodes.
NODE_BYTES_PER_S = 1e9
STORAGE_BYTES_PER_S = 2e12

# MegaScale gained about 0.7 % by removing slow machines (recalled): among the 1,536 nodes of 12,288 devices
# the slowest is 3.3 standard deviations behind, so that one is 0.2 % of a step. Step times are fitted to runs
# that had stragglers of their own: this is what larger scale adds, and deliberately small.
STEP_JITTER = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """How often a run is interrupted, how long that takes, and how fast its state is written.

    `step_jitter` is the standard deviation of a node's time for a step, relative to the step. An interval of
    zero asks for the best one; a checkpoint of zero bytes for the size of the model's state.
    """

    failures_per_device_day: float = FAILURES_PER_DEVICE_DAY
    detection_s: float = DETECTION_S
    restart_s: float = RESTART_S
    node_bytes_per_s: float = NODE_BYTES_PER_S
    storage_bytes_per_s: float = STORAGE_BYTES_PER_S
    checkpoint_bytes: float = 0.0
    interval_s: float = 0.0
    planned_per_day: float = PLANNED_PER_DAY
    planned_s: float = RESTART_S
    step_jitter: float = STEP_JITTER


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What is interrupted: devices in nodes, the time of a step, the bytes of a checkpoint."""

    devices: int
    nodes: int
    step_s: float
    state_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """Where the time of a run goes: `share` and the four shares lost add up to one.

    `straggling` is how much longer a step takes because of the slowest node; it is beside the shares.
    `interval_s` is infinite where nothing fails, since then no checkpoint is needed.
    """

    failures_per_day: float
    checkpoint_bytes: float
    checkpoint_s: float
    interval_s: float
    share: float
    checkpoint_share: float
    redone_share: float
    restart_share: float
    planned_share: float
    straggling: float

    @property
    def speed(self) -> float:
        """Effective over steady throughput."""
        return self.share / (1.0 + self.straggling)


def goodput(run: Run, reliability: Reliability) -> Goodput:
    """The share of time in which a run moves forward, and what takes the rest."""
    per_day = reliability.failures_per_device_day * run.devices
    size = reliability.checkpoint_bytes or run.state_bytes
    write_s = size / min(reliability.node_bytes_per_s * run.nodes, reliability.storage_bytes_per_s)
    mean_s = DAY_S / per_day if per_day else inf
    interval_s = reliability.interval_s or max(best_interval_s(write_s, mean_s), run.step_s)
    lost = _lost(interval_s, write_s, mean_s, reliability.detection_s + reliability.restart_s)
    planned = min(reliability.planned_per_day * reliability.planned_s / DAY_S, 1.0)
    return Goodput(
        failures_per_day=per_day,
        checkpoint_bytes=size,
        checkpoint_s=write_s,
        interval_s=interval_s,
        share=(1.0 - planned) * (1.0 - sum(lost)),
        checkpoint_share=(1.0 - planned) * lost[0],
        redone_share=(1.0 - planned) * lost[1],
        restart_share=(1.0 - planned) * lost[2],
        planned_share=planned,
        straggling=reliability.step_jitter * slowest_of(run.nodes),
    )


def best_interval_s(write_s: float, mean_s: float) -> float:
    """Work between checkpoints that wastes the least: Daly's higher-order form of Young's sqrt(2 C M)."""
    if mean_s == inf:
        return inf
    if write_s >= 2.0 * mean_s:
        return mean_s
    ratio = write_s / (2.0 * mean_s)
    return sqrt(2.0 * write_s * mean_s) * (1.0 + sqrt(ratio) / 3.0 + ratio / 9.0) - write_s


def slowest_of(nodes: int) -> float:
    """How many standard deviations the slowest of some nodes is behind the mean, if they vary normally.

    Blom's 1958 approximation of the expected maximum, within 5 % for two nodes and 1 % from ten on.
    """
    return NormalDist().inv_cdf((nodes - 0.375) / (nodes + 0.25))


def _lost(interval_s: float, write_s: float, mean_s: float, restart_s: float) -> tuple[float, float, float]:
    """Shares of time for checkpoints, for work that is done again, and for finding failures and restarting.

    With k = exp((τ + C) / M) - 1 failures of work for each checkpoint, all attempts take k M, of which τ + C
    are kept; a restart takes M (exp(R / M) - 1), since it may fail too.
    """
    if mean_s == inf:
        return (0.0 if interval_s == inf else write_s / (interval_s + write_s)), 0.0, 0.0
    if max(interval_s + write_s, restart_s) > _MOST_EXPONENT * mean_s:
        return 0.0, 1.0, 0.0
    failures = expm1((interval_s + write_s) / mean_s)
    whole_s = mean_s * exp(restart_s / mean_s) * failures
    redone_s = mean_s * failures - interval_s - write_s
    return write_s / whole_s, redone_s / whole_s, failures * mean_s * expm1(restart_s / mean_s) / whole_s
