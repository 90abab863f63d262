"""What a sweep is: a baseline, axes along which it is changed, constraints, and what is written down."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from trainwright.cluster.types import Cluster
from trainwright.cost.constants import Stack
from trainwright.cost.memory_risk import DEFAULT_RISK
from trainwright.errors import BadInput
from trainwright.model.architecture import Architecture
from trainwright.search.batch_target import TOLERANCE
from trainwright.sweep.constraints import Constraint

ROWS = ("best", "all")
SEARCHES = ("plan", "every")
Label = float | int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The baseline of a sweep; what is 0, empty or None is taken as usual for the model and the device.

    `strategy` maps knobs to the values that they may take, `most` to the largest one.
    """

    model: Architecture
    cluster: Cluster
    stack: Stack | None = None
    cost: str = "calibrated"
    seq: int = 0  # tokens per sequence; 0: the model's
    batch: int = 0  # sequences per step; 0: by batch_tokens
    batch_tokens: int = 0  # 0: by model size
    batch_tolerance: float = TOLERANCE  # how far a batch may be from so many tokens, as a share
    precision: str = ""
    optimizer: str = ""
    grad_dtype: str = ""
    expert_imbalance: float = 0.0  # routed tokens of the rank with most, of the mean; 0: the stack's
    oom_risk: float = DEFAULT_RISK  # the largest that a chosen strategy may have
    strategy: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    most: Mapping[str, int] = field(default_factory=dict)
    dollars_per_kwh: float = 0.0  # on top of the price of an hour


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A field and the values that it takes, with what is written for each; `ratio`: times the baseline's.

    Axes with the same `zipped` name go together, value by value.
    """

    name: str  # of its column
    field: str
    values: tuple[object, ...]
    labels: tuple[Label, ...]
    ratio: bool = False
    zipped: str = ""

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A design space: every combination of the axes that the constraints allow.

    `search`: by `plan`, as the command of that name does it; or `every` strategy of the space is evaluated.
    `rows`: one for the best strategy of each point, or one for all of them. `text` is the file it came from.
    """

    name: str
    setting: Setting
    axes: tuple[Axis, ...]
    constraints: tuple[Constraint, ...] = ()
    search: str = "plan"
    rows: str = "best"
    objective: str = "time"
    columns: tuple[str, ...] = ()  # of the results; none: the usual ones
    points_per_chunk: int = 0  # 0: by the size of the space
    text: str = ""

    def __post_init__(self) -> None:
        for group in self.groups:
            if len({len(axis) for axis in group}) > 1:
                sizes = ", ".join(f"{axis.name} has {len(axis)}" for axis in group)
                raise BadInput("zipped axes", sizes, "differ in length", "give each as many values")

    @property
    def groups(self) -> tuple[tuple[Axis, ...], ...]:
        """Axes that go together, in the order of the first of each."""
        found: dict[str, list[Axis]] = {}
        for axis in self.axes:
            found.setdefault(f"zip {axis.zipped}" if axis.zipped else f"axis {axis.name}", []).append(axis)
        return tuple(tuple(group) for group in found.values())

    def __len__(self) -> int:
        """Design points, those that constraints forbid included."""
        return prod(len(group[0]) for group in self.groups)
