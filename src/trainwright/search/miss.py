"""Nothing fits: how near it came, and what would make it fit."""

from collections.abc import Iterator
from dataclasses import replace

from trainwright.errors import InfeasiblePlan, TrainwrightError
from trainwright.plan.strategy import OFFLOADS, RECOMPUTES
from trainwright.search.find import Found, Question, find_plans
from trainwright.units import render_bytes

_GROWTH = (2, 3, 4, 6, 8, 12, 16, 24, 32, 64)  # times the devices, tried in turn


def nearest_miss(question: Question, found: Found) -> InfeasiblePlan:
    """The error of a search that found nothing: what needs the fewest bytes, and remedies that fit."""
    cluster = question.job.cluster
    if not len(found.nearest):
        return InfeasiblePlan(
            f"{question.job.graph.name} on {cluster.count} {cluster.device.name}: each of "
            f"{found.considered:,} strategies leaves a stage empty or offloads more than the host holds; "
            "use fewer stages"
        )
    capacity = cluster.capacity_bytes
    need = float(found.nearest.total_bytes[0])
    needs = f"needs {render_bytes(need)} on its fullest device, which has {render_bytes(capacity)}"
    if need <= capacity:
        needs += f", of which {question.filled_share:.1%} may be filled at this OOM risk"
    remedies = [words for words, changed in _relaxed(question) if _fits(changed)]
    devices = _fitting_count(question)
    remedies += [f"{devices} devices would fit"] if devices else []
    advice = "; ".join(remedies) if remedies else "no single change was found that makes it fit"
    return InfeasiblePlan(
        f"{question.job.graph.name} does not fit on {cluster.count} {cluster.device.name}: "
        f"of {found.considered:,} strategies the nearest miss, "
        f'"{found.nearest.strategies[0]}", {needs}; {advice}',
        nearest=str(found.nearest.strategies[0]), needed_bytes=need, capacity_bytes=capacity,
        devices_needed=devices,
    )  # fmt: skip


def _fitting_count(question: Question) -> int | None:
    """The first of some larger counts of devices on which a plan fits."""
    counts = (question.job.cluster.count * factor for factor in _GROWTH)
    return next((count for count in counts if _fits(_on_devices(question, count))), None)


def _relaxed(question: Question) -> Iterator[tuple[str, Question]]:
    """The question with one constraint lifted that costs memory."""
    fixed, most = dict(question.fixed), question.most
    loosest = {
        "recompute": ("recomputing activations would fit", RECOMPUTES.index("full")),
        "offload": ("offloading to the host would fit", OFFLOADS.index("both")),
    }
    for knob, (words, strongest) in loosest.items():
        if knob in fixed and strongest not in fixed[knob]:
            yield words, replace(question, fixed={name: v for name, v in fixed.items() if name != knob})
    for knob, words in (
        ("micro_batch", "a smaller micro batch would fit"),
        ("zero", "sharding more (a higher ZeRO stage) would fit"),
        ("tp", "another tp would fit"),
        ("pp", "another pp would fit"),
        ("cp", "another cp would fit"),
        ("dp", "another dp would fit"),
        ("ep", "another ep would fit"),
    ):
        if knob in fixed or knob in most:
            yield (
                words,
                replace(
                    question,
                    fixed={name: v for name, v in fixed.items() if name != knob},
                    most={name: v for name, v in most.items() if name != knob},
                ),
            )
    smallest = min(question.batches)
    if smallest > 1:
        for batch in dict.fromkeys((max(smallest // 4, 1), 1)):
            yield f"a global batch of {batch} would fit", replace(question, batches=(batch,))


def _on_devices(question: Question, count: int) -> Question:
    """The same on more devices; a fixed dp grows with them, and the batch at least to the devices."""
    fixed = {name: values for name, values in question.fixed.items() if name != "dp"}
    cluster = replace(question.job.cluster, count=count)
    return replace(question, job=replace(question.job, cluster=cluster), fixed=fixed)


def _fits(question: Question) -> bool:
    try:
        _ = question.job.cluster.levels
        return len(find_plans(question).best) > 0
    except TrainwrightError:  # no legal strategy, or a network that joins no more devices
        return False
