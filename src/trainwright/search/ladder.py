"""The ladder of what is traded for memory: recomputation and offloading, the fastest rung first."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from trainwright.plan.recompute_modules import RECOMPUTES, is_subset
from trainwright.plan.strategy import ACTIVATION_OFFLOADS, EVERY_LAYER, OFFLOADS, SCHEDULES
from trainwright.search.space import Space, offloads, recomputations

_FULL = RECOMPUTES.index("full")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One choice of recomputation and offloading, as indices; `counted` if it may recompute fewer layers,
    `counts_offloaded` if it may offload activations of fewer layers.
    """

    recompute: int
    layers: int
    offload: int
    offload_layers: int = EVERY_LAYER
    counted: bool = False
    counts_offloaded: bool = False

    @property
    def keeps_activations(self) -> bool:
        """Whether activations stay on the device."""
        return OFFLOADS[self.offload] not in ACTIVATION_OFFLOADS


def rungs(space: Space) -> tuple[Rung, ...]:
    """Every rung of a space; those that cost less time come before those that include them.

    The number of recomputed layers is open where neither it nor recomputation is constrained, and activations
    stay on the device: otherwise full recomputation is of every layer. So is the number of layers that
    offload activations, where it is not constrained and the software counts them.
    """
    open_ = not {"recompute", "recompute_layers"} & {*space.fixed, *space.most}
    offloads_some = space.counts_offloaded_layers and "offload_layers" not in {*space.fixed, *space.most}
    listed = (
        Rung(recompute=recompute, layers=layers, offload=offload, offload_layers=moved)
        for offload, moved in sorted(offloads(space))
        for recompute, layers in sorted(recomputations(space))
    )
    return tuple(
        replace(
            rung,
            counted=open_ and rung.recompute == _FULL and rung.keeps_activations,
            counts_offloaded=offloads_some and not rung.keeps_activations,
        )
        for rung in listed
    )


def never_slower(less: Rung, more: Rung) -> bool:
    """Whether a strategy on one rung is as fast as on another, however many layers recompute or offload
    activations on either.

    Moving more to the host takes no less time. Recomputing more modules takes no less time than some of them
    or none, except where activations move: there it leaves less to move. Modules of all layers and full
    recomputation of some may go either way, as may a few layers with the optimizer on the host and more
    without, be it that they recompute or that they offload activations.
    """
    numbered = more.counts_offloaded or more.offload_layers != less.offload_layers
    if less != more and not less.keeps_activations and numbered:
        return False
    if less.offload not in (0, more.offload) and OFFLOADS[more.offload] != "both":
        return False
    if (less.recompute, less.layers) == (more.recompute, more.layers):
        return less == more or not more.counted
    fewer = less.recompute != more.recompute and is_subset(less.recompute, more.recompute)
    return fewer and less.keeps_activations


def bottom(space: Space) -> Rung | None:
    """The rung that none is faster than, if the space has one.

    If not, every strategy of the space must be evaluated, and full recomputation is of every layer.
    """
    every = rungs(space)
    return every[0] if all(never_slower(every[0], rung) for rung in every) else None


def on_rung(space: Space, rung: Rung) -> Space:
    """The part of a space that is on one rung."""
    own = rung_knobs(rung)
    return replace(space, fixed={**space.fixed, **{knob: (value,) for knob, value in own.items()}})


def rung_knobs(rung: Rung) -> dict[str, int]:
    """The knobs of a strategy on a rung."""
    return {
        "recompute": rung.recompute, "recompute_layers": rung.layers,
        "offload": rung.offload, "offload_layers": rung.offload_layers,
    }  # fmt: skip


def without_gpipe(space: Space) -> Space:
    """The space without gpipe where 1f1b is allowed: as fast, with never more memory."""
    schedules = space.fixed.get("schedule", tuple(range(len(SCHEDULES))))
    if SCHEDULES.index("1f1b") not in schedules:
        return space
    kept = tuple(each for each in schedules if SCHEDULES[each] != "gpipe")
    return replace(space, fixed={**space.fixed, "schedule": kept})


def higher(space: Space) -> Iterator[Rung]:
    """The rungs above the bottom, in order."""
    lowest = bottom(space)
    return (rung for rung in rungs(space) if rung != lowest)
