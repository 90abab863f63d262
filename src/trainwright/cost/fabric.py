"""What collectives reach of a network level's datasheet: a few constants per fabric."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

INNER, OUTER = "inner", "outer"  # what levels of no known fabric are taken for: the innermost, the others


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """The constants of one kind of link, fitted to collectives that were measured alone.

    Nothing here is fitted to a training run. What a step loses beyond it (stacks that reach less, compute
    that runs beside) belongs to the stack.
    """

    share: float = 0.8  # of the level's bandwidth that rings reach with many bytes
    reducing: float = 0.8  # rate of switches that reduce, of the rate of rings; each member sends (n+1)/n
    start_s: float = 15e-6  # once per collective
    latency_s: float = 6e-6  # per doubling of a tree and way, beyond the level's own
    hop_s: float = 3.4e-6  # from member to member of a ring that is under way
    rows: int = 0  # measured collectives that the numbers rest on; 0: a default


# As a datasheet would have it: nothing is lost.
PERFECT = Fabric(share=1.0, reducing=1.0, start_s=0.0, latency_s=0.0, hop_s=0.0)
DEFAULTS: Mapping[str, Fabric] = {
    INNER: Fabric(),
    OUTER: Fabric(share=0.9, start_s=40e-6, latency_s=20e-6, hop_s=14e-6),
}


def alike(fabric: Fabric) -> Mapping[str, Fabric]:
    """Fabrics of a network whose levels are all of one kind."""
    return {INNER: fabric, OUTER: fabric}


def slower(fabric: Fabric, times: float) -> Fabric:
    """The fabric with every latency so many times as long."""
    return replace(
        fabric, start_s=times * fabric.start_s, latency_s=times * fabric.latency_s, hop_s=times * fabric.hop_s
    )


def fabric_of(fabrics: Mapping[str, Fabric], name: str, index: int) -> Fabric:
    """The fabric of this name; of no known name, what a level at this place is taken for."""
    return fabrics.get(name) or fabrics[INNER if index == 0 else OUTER]
