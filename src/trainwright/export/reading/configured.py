"""What a user's configuration says, and what the user says beside it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainwright.errors import BadInput
from trainwright.model.architecture import Architecture
from trainwright.plan.strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """A plan as it was configured elsewhere: knobs, batch, length, and the model if it is in there.

    `stack` is the software that it is for; `notes` say what was read and has no counterpart here.
    """

    strategy: Strategy
    global_batch: int
    stack: str
    seq: int | None = None
    architecture: Architecture | None = None
    model: str | None = None  # a name of the catalog
    optimizer: str = ""  # as stated; "": the stack's own
    grad_dtype: str = ""
    expert_imbalance: str = ""  # as stated for a prediction; "": the stack's own
    notes: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()  # rules of the software that the configuration breaks, if they are known


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedSettings:
    """What the user states; it goes before what the configuration says."""

    devices: int | None = None
    architecture: Architecture | None = None
    micro_batch: int | None = None
    global_batch: int | None = None
    vocab: int | None = None
    precision: str | None = None
    device_family: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)  # of a script
    function: str = ""  # of a Python file


def check_positive(value: int, thing: str) -> int:
    """The value; raises for one below 1, which would be taken as not stated."""
    if value < 1:
        raise BadInput(thing, value, "must be 1 or more", "correct it, or leave it out")
    return value


def replicas_of(devices: int | None, inside: int, source: str) -> int:
    """Data-parallel replicas on so many devices, with so many in each."""
    if devices is None:
        raise BadInput(
            source,
            "no device count",
            "how many devices it is for is not in it",
            "name a cluster",
        )
    if inside < 1:
        raise BadInput(source, f"tp·cp·pp = {inside}", "degrees start at 1", "use 1 or more")
    if devices % inside:
        raise BadInput(
            source, f"{devices} devices", f"do not divide by tp·cp·pp = {inside}", "state another count"
        )
    return devices // inside
