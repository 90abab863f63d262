"""The tensors that a program has made so far, in which layouts, and by which steps."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainwright.model.graph import ELEMENT_BYTES, Tensor
from trainwright.plan.rules import ROUTED
from trainwright.program.layout import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a value is made of: the sizes of its dims in order, and bytes per element."""

    dims: Mapping[str, int]
    element_bytes: float
    total_bytes: float


def shape_of(tensor: Tensor, sizes: Mapping[str, int], activation_bytes: float) -> Shape:
    """The shape of a tensor; routed tokens may be split by experts too."""
    dims = {dim: sizes[dim] for dim in tensor.dims}
    element = float(ELEMENT_BYTES.get(tensor.element, activation_bytes))
    total = element
    for size in dims.values():
        total *= size
    if "top_k" in dims and ROUTED in sizes and ROUTED not in dims:
        dims[ROUTED] = sizes[ROUTED]
        element /= sizes[ROUTED]
    return Shape(dims=dims, element_bytes=element, total_bytes=total)


@dataclass(slots=True)
class Store:
    """Values by name: in each layout, the steps whose results add up to it."""

    versions: dict[str, dict[Layout, list[int]]] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return name in self.versions

    def add(self, name: str, layout: Layout, step: int) -> None:
        """A step writes a value; a second writer adds to what the first has written."""
        self.versions.setdefault(name, {}).setdefault(layout, []).append(step)

    def alias(self, name: str, layout: Layout, other: Layout) -> None:
        """The value in one layout is also the value in another."""
        self.versions[name][other] = self.versions[name][layout]

    def layouts(self, name: str) -> tuple[Layout, ...]:
        """The layouts in which a value exists."""
        return tuple(self.versions.get(name, ()))

    def drop(self, name: str, layout: Layout) -> None:
        """Forget one layout of a value."""
        self.versions[name].pop(layout, None)


def held_bytes(shape: Shape, layout: Layout) -> float:
    """Bytes of a value on one device."""
    total = shape.total_bytes
    for dim, _ in layout.splits:
        total /= layout.parts(dim)
    return total
