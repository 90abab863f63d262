"""What algorithms need to know of a model: its weights, and the units that subnetworks are made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from trainwright.errors import BadInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A dim of a weight that units lie along, each `width` entries wide: neurons, or the entries of heads."""

    group: str
    width: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """One weight; `block` is the one unit that it belongs to as a whole, if it is part of a residual block.

    `reads` tells that it multiplies (or, for the bias of a block, joins) what units put out: a merged model
    is scaled there. `product` tells that it is one side of a matrix product.
    """

    name: str
    sizes: tuple[int, ...]
    axes: tuple[Axis | None, ...] = ()
    block: tuple[str, int] | None = None
    reads: str = ""  # the group whose output it reads
    product: bool = True

    @property
    def elements(self) -> int:
        """Numbers in it."""
        return prod(self.sizes)

    @property
    def shared(self) -> bool:
        """Whether every worker holds it whole, whatever the subnetworks are."""
        return self.block is None and not any(self.axes)


@dataclass(frozen=True, kw_only=True)
class Anatomy:
    """The weights of a model in their order, and how many units each group has.

    A sample uses every weight `positions` times (the tokens of a sequence). `unit_flops` is what a unit of a
    group computes forward for a sample beside its weights: the scores of an attention head.
    """

    weights: tuple[Weight, ...]
    units: Mapping[str, int] = field(default_factory=dict)
    positions: int = 1
    unit_flops: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for weight in self.weights:
            for axis, size in zip(weight.axes, weight.sizes, strict=bool(weight.axes)):
                if axis and self.units.get(axis.group, 0) * axis.width != size:
                    rule = f"has a dim of {size}, and its units of {axis.group} make another size"
                    raise BadInput("weight", weight.name, rule, "correct the axes")

    @cached_property
    def elements(self) -> int:
        """Numbers in all weights."""
        return sum(weight.elements for weight in self.weights)

    @cached_property
    def partitioned(self) -> tuple[Weight, ...]:
        """Weights that subnetworks divide."""
        return tuple(weight for weight in self.weights if not weight.shared)

    @cached_property
    def shared(self) -> tuple[Weight, ...]:
        """Weights that every worker holds."""
        return tuple(weight for weight in self.weights if weight.shared)


def forward_flops(anatomy: Anatomy, held: Mapping[str, int] | None = None) -> float:
    """Forward FLOPs of a sample: 2 for every number of a product, in a subnetwork of so many units if stated.

    Of a group of residual blocks every unit counts the same, which holds if they are alike.
    """
    held = anatomy.units if held is None else held
    products = sum(_expected(anatomy, weight, held) for weight in anatomy.weights if weight.product)
    beside = sum(flops * held[group] for group, flops in anatomy.unit_flops.items())
    return 2.0 * anatomy.positions * products + beside


def _expected(anatomy: Anatomy, weight: Weight, held: Mapping[str, int]) -> float:
    if len(weight.sizes) < 2:
        return 0.0
    share = held[weight.block[0]] / anatomy.units[weight.block[0]] if weight.block else 1.0
    for axis in filter(None, weight.axes):
        share *= held[axis.group] / anatomy.units[axis.group]
    return share * weight.elements
