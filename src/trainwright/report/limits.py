"""What limits a plan, in words."""

from collections.abc import Mapping

from trainwright.report.summary import Summary
from trainwright.units import render_bytes

# What each part of the step is, and what would make it smaller.
CAUSES: Mapping[str, tuple[str, str]] = {
    "matmul": ("matrix products", "a faster device or a lower precision"),
    "attention": ("attention", "a shorter sequence, or a device with a higher rate"),
    "streaming": ("norms and element-wise work", "more memory bandwidth, or more fusion"),
    "recompute": ("recomputing activations", "more memory, a smaller micro batch, or finer sharding"),
    "launch": ("launching kernels", "a larger micro batch, or CUDA graphs"),
    "tp": ("tensor-parallel communication", "less tp, or a faster link inside the node"),
    "cp": ("context-parallel communication", "less cp, or a faster link between its ranks"),
    "ep": ("expert-parallel communication", "less ep, or experts kept inside a node"),
    "pp": ("pipeline sends", "fewer chunks per stage, or a lower latency"),
    "dp": ("gradient and weight traffic of data parallelism", "a larger batch, or a faster network"),
    "offload": ("moving data to and from the host", "less offloading, or a faster link to the host"),
    "tiers": ("reading expanded memory", "more memory of the device's own, or a faster expanded tier"),
    "bubble": ("the pipeline bubble", "more microbatches, fewer stages, or interleaving"),
    "optimizer": ("the optimizer", "sharding it further, or more memory bandwidth"),
    "overhead": ("fixed work per step", "a larger batch"),
}
_NOTABLE = 0.05  # share of the step from which a cause is named


def limits(summary: Summary, roomier_step_s: float | None = None) -> tuple[str, ...]:
    """Sentences: the largest causes with a remedy, communication, memory (given the step with more of it)."""
    shares = sorted(((value / summary.step_s, name) for name, value in summary.time_s.items()), reverse=True)
    named = [(share, name) for share, name in shares if share >= _NOTABLE][:4]
    sentences = [_sentence(share, *CAUSES[name]) for share, name in named]
    return (*sentences, _exposed(summary), _memory(summary, roomier_step_s))


def _sentence(share: float, cause: str, remedy: str) -> str:
    return f"{cause[0].upper()}{cause[1:]}: {share:.0%} of the step; {remedy} would help."


def _exposed(summary: Summary) -> str:
    total = sum(summary.communication_s.values())
    if total == 0:
        return "No communication between devices."
    exposed = summary.exposed_fraction * summary.step_s
    hidden = max(1.0 - exposed / total, 0.0)
    share = f"Exposed communication: {summary.exposed_fraction:.1%} of the step"
    return f"{share}; {hidden:.0%} of all communication is hidden."


def _memory(summary: Summary, roomier_step_s: float | None) -> str:
    used = (
        f"Memory: {render_bytes(summary.total_bytes)} "
        f"({render_bytes(summary.low_bytes)} to {render_bytes(summary.high_bytes)}) "
        f"of {render_bytes(summary.capacity_bytes)} usable, OOM risk {summary.oom_risk:.1%}"
    )
    if roomier_step_s is None:
        return f"{used}."
    gain = summary.step_s / roomier_step_s - 1.0
    if gain < 0.005:
        return f"{used}; it does not limit the plan."
    return f"{used}; with 25 % more the best plan would be {gain:.1%} faster."
