"""A plan as a value: how operators are transformed, where they run, and in which order."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from trainwright.errors import BadInput
from trainwright.plan.action import Action
from trainwright.plan.mapping import Sizes, check_mapping

What = Literal["weights", "gradients", "optimizer", "activations"]
STATE: tuple[What, ...] = ("weights", "gradients", "optimizer")
MOVED: tuple[What, ...] = ("optimizer", "activations")


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Each operator chosen becomes `parts` operators along `dim`, equal ones unless `sizes` says otherwise.

    Along a dim of the result the parts are shards; along one that is summed over, partial values. Splits of
    one operator nest in the order of the plan: the first is the outermost axis of its devices. A `serial`
    split puts all parts on each device, to run one after the other (co-shard).
    """

    ops: str
    dim: str
    parts: int
    sizes: tuple[int, ...] = ()
    serial: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicate:
    """Each operator chosen is done `parts` times over, with the same result."""

    ops: str
    parts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompute:
    """The operators chosen are done again before their backward, so that their results need not be kept.

    With `results`, only those are not kept; with none of them, only what the operators save for their own
    backward is freed: an ordinary checkpoint.
    """

    ops: str
    results: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """State of the operators chosen is split over the `ranks` innermost of the devices that hold copies.

    0 ranks are all of them. Sharding the optimizer is ZeRO-1, gradients too ZeRO-2, weights too ZeRO-3.
    """

    ops: str
    what: What
    ranks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Offload:
    """What the operators chosen keep lives on the host until it is needed."""

    ops: str
    what: What


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """What the operators chosen gather arrives piece by piece, while they work on what is there (a ring)."""

    ops: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """The operators chosen are split over `parts` islands along `dim`, and nothing is synchronised in a step.

    A split without its sums: along `batch` every island learns from samples of its own and sums gradients
    among its own devices only; along `heads` or `ffn` it trains those units alone, and what they give is not
    added to what those of other islands give.
    """

    ops: str
    dim: str
    parts: int


Transform = Split | Replicate | Recompute | Shard | Offload | Stream | Apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """The operators chosen run on these devices: parts in order, as many devices as parts.

    `route` is which microbatches it is for: all (0 of 1), or those with that remainder (1 of 2: odd ones).
    """

    ops: str
    devices: tuple[int, ...]
    route: tuple[int, int] = (0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Operators that actions of an order speak of together."""

    ops: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The actions of some devices, one after another."""

    devices: tuple[int, ...]
    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Synchronise:
    """After every so many steps the islands meet, in the way of an algorithm: `diloco rate=0.7`."""

    every: int
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Transforms, assignments and orders; and the batch that they share.

    `batch` is the samples of one microbatch over all of its devices. Without `stages` the model is one
    stage; devices without an order go through microbatches one by one, forward and backward. A `mapping`
    says where devices, numbered with tp innermost, then cp, dp and pp, stand on the network: its axes with
    their sizes, innermost first. Without one they stand as they are numbered.

    Where operators are set apart, all of this is of one island (its devices, its samples), and the others do
    the same on devices that follow; `synchronise` says how they meet.
    """

    name: str = ""
    devices: int = 1
    batch: int = 1
    microbatches: int = 1
    precision: str = "bf16"
    overlap: bool = True
    transforms: tuple[Transform, ...] = ()
    assigns: tuple[Assign, ...] = ()
    stages: tuple[Stage, ...] = ()
    orders: tuple[Order, ...] = ()
    mapping: Sizes = ()
    synchronise: Synchronise | None = None

    def __post_init__(self) -> None:
        check_mapping(self.mapping, self.devices)
        for name in ("devices", "batch", "microbatches"):
            if getattr(self, name) < 1:
                raise BadInput(f"plan {name}", getattr(self, name), "starts at 1", "use 1 or more")

    def __or__(self, other: "Plan") -> "Plan":
        """Both plans as one: transforms of the left first; what both state must be the same."""
        changes: dict[str, object] = {
            name: (*getattr(self, name), *getattr(other, name))
            for name in ("transforms", "assigns", "stages", "orders")
        }
        for name, neutral in _NEUTRAL.items():
            changes[name] = _one_of(name, getattr(self, name), getattr(other, name), neutral)
        return replace(self, **changes)  # type: ignore[arg-type]


_NEUTRAL: Mapping[str, object] = {
    "name": "", "devices": 1, "batch": 1, "microbatches": 1, "precision": "bf16", "overlap": True,
    "mapping": (), "synchronise": None,
}  # fmt: skip


def _one_of(name: str, left: object, right: object, neutral: object) -> object:
    if neutral in (left, right) or left == right:
        return right if left == neutral else left
    if name == "name":
        return f"{left} | {right}"
    raise BadInput(f"plan {name}", f"{left} | {right}", "the two plans disagree", "state it in one of them")
