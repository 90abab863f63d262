"""What a program does, one thing after another: operators on shards, and moves between layouts."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from trainwright.program.layout import Layout, Mesh
from trainwright.program.moves import Move

# Phases: F forward, N forward without gradient, R forward again, I gradients of inputs, W gradients of
# weights, P before the first microbatch, S after the last.
PHASES = "FNRIWPS"
GRADIENT = "d:"  # before the name of a value
STATE_GRADIENT = "g:"  # before the name of an operator: the gradient of its weights


Weight = tuple[int, str]  # the operator that owns it, and its name there


class Value(NamedTuple):
    """A tensor as it lies on devices."""

    name: str
    layout: Layout

    def __hash__(self) -> int:
        return hash(self.name)  # few lie in several layouts, and values are looked up very often


@dataclass(slots=True, kw_only=True)
class Step:
    """One operator's part, or one move, on all the devices of a mesh at once, for one microbatch.

    `reads` and `writes` say which values it needs and makes; a value written twice is the sum of both. Of its
    `seconds` (on each device) the share `blocking` holds up compute and the rest runs beside it.
    """

    name: str
    phase: str
    kind: str  # compute, update, wait, copy, or the kind of a move
    cause: str
    mesh: Mesh
    stage: int
    block: str
    instance: int = -1
    chunk: int = 0
    reads: tuple[Value, ...] = ()
    writes: tuple[Value, ...] = ()
    after: tuple[int, ...] = ()  # steps that must end first besides those that write what it reads
    after_weights: tuple[int, ...] = ()  # the same, unless weight gradients are put off
    move: Move | None = None
    passes: int = 0  # of a forward without gradient: which
    seconds: float = 0.0
    whole_s: float = 0.0  # with what the stack hides for nothing
    uneven_s: dict[int, float] = field(default_factory=dict)  # by device, where devices differ
    blocking: float = 1.0
    slows: float = 0.0
    lane: str = "main"
    bytes: float = 0.0  # sent by each device
    kernels: float = 0.0
    alongside: int = -1  # the operator whose results it takes as they come, from its start on
    beside: tuple[int, ...] = ()  # moves whose unblocking part runs while this step does
    state: tuple[Weight, ...] = ()  # weights that it gathers, or whose gradients it reduces
    groups: tuple[tuple[int, ...], ...] = ()  # of devices that do so together
    span: tuple[float, float] = (0.0, 1.0)  # which part of each of them, where the rest is another step's
    scale: float = 1.0  # what its results are multiplied by

    def set(self, **changes: object) -> "Step":
        """A copy with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]


def gradient(name: str) -> str:
    """The name of the gradient of a value."""
    return GRADIENT + name
