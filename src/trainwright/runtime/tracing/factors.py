"""Axes as products of factors: which axes of which tensors are the same, found from how they are used.

A view of (batch, seq, heads·width) as (batch, seq, heads, width) shows that the last axis has two factors.
Factors that are used as one become one; those that one tensor or one product has side by side stay apart.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

Apart = tuple[int, tuple[int, ...]]  # a rule, and the place under it: places of one rule are never one factor


@dataclass(slots=True, kw_only=True, eq=False)
class Factor:
    """A part of an axis that no view cuts, as far as is known."""

    size: int
    same: "Factor | None" = None  # the factor that this has become one with
    parts: "tuple[Factor, ...]" = ()  # what it has been cut into
    apart: set[Apart] = field(default_factory=set)


Axis = tuple[Factor, ...]
Axes = tuple[Axis, ...]


class Conflict(Exception):
    """Axes that cannot be what they are asked to be."""


def root(factor: Factor) -> Factor:
    """The factor that stands for all that have become one with this."""
    while factor.same is not None:
        factor = factor.same
    return factor


def leaves(axis: Sequence[Factor]) -> Axis:
    """The uncut factors of an axis, in order."""
    found: list[Factor] = []
    for each in axis:
        own = root(each)
        found += leaves(own.parts) if own.parts else [own]
    return tuple(found)


def all_leaves(axes: Sequence[Axis]) -> Axis:
    """The uncut factors of all axes, in order."""
    return tuple(factor for axis in axes for factor in leaves(axis))


@dataclass(slots=True, kw_only=True)
class Factors:
    """All factors of a module; `changes` counts what has been found out."""

    changes: int = 0
    rules: int = 0

    def new_axis(self, size: int) -> Axis:
        """An axis of one new factor; none for an axis of size 1, which fits any other."""
        return (Factor(size=size),) if size != 1 else ()

    def keep_apart(self, axes: Sequence[Axis]) -> None:
        """State that no two of the factors in `axes` are the same."""
        factors = all_leaves(axes)
        if len(set(map(id, factors))) < len(factors):
            raise Conflict("a factor is there twice")
        rule, self.rules = self.rules, self.rules + 1
        for place, factor in enumerate(factors):
            factor.apart.add((rule, (place,)))

    def unify(self, left: Axis, right: Axis) -> None:
        """State that two axes of equal size are the same, factor by factor; raise if they cannot be."""
        for one, other in list(self.aligned(left, right)):
            self._join(one, other)

    def can_unify(self, left: Axis, right: Axis) -> bool:
        """Whether two axes may be the same."""
        try:
            pairs = list(self.aligned(left, right))
        except Conflict:
            return False
        return not any(_conflict(root(one), root(other)) for one, other in pairs)

    def aligned(self, left: Axis, right: Axis) -> Iterator[tuple[Factor, Factor]]:
        """Pairs of factors of equal size that make up two axes of equal size, cut where they must be."""
        ones, others = list(leaves(left)), list(leaves(right))
        while ones and others:
            one, other = ones.pop(0), others.pop(0)
            if one.size < other.size:
                others = [*self.cut(other, one.size)[1:], *others]
                other = leaves((other,))[0]
            elif other.size < one.size:
                ones = [*self.cut(one, other.size)[1:], *ones]
                one = leaves((one,))[0]
            yield one, other
        if ones or others:
            raise Conflict("two axes are not equally long")

    def regroup(self, axes: Sequence[Axis], shape: Sequence[int]) -> Axes:
        """The axes of a view of another shape: factors in the same order, cut where it cuts."""
        rest = list(all_leaves(axes))
        found: list[Axis] = []
        for size in shape:
            axis: list[Factor] = []
            while size > 1:
                if not rest:
                    raise Conflict(f"{shape} is longer than what it views")
                factor = rest.pop(0)
                if factor.size > size:
                    rest = [*self.cut(factor, size)[1:], *rest]
                    factor = leaves((factor,))[0]
                if size % factor.size:
                    raise Conflict(f"{size} is not made up of factors")
                size //= factor.size
                axis.append(factor)
            found.append(tuple(axis))
        if rest:
            raise Conflict(f"{shape} is shorter than what it views")
        return tuple(found)

    def cut(self, factor: Factor, first: int) -> Axis:
        """The two factors that one is cut into, the first of size `first`."""
        if factor.size % first:
            raise Conflict(f"{factor.size} does not divide by {first}")
        self.changes += 1
        parts = (Factor(size=first), Factor(size=factor.size // first))
        for place, part in enumerate(parts):
            part.apart = {(rule, (*places, place)) for rule, places in factor.apart}
        factor.parts = parts
        return parts

    def _join(self, one: Factor, other: Factor) -> None:
        one, other = root(one), root(other)
        if one is other:
            return
        if _conflict(one, other):
            raise Conflict("two factors are kept apart")
        self.changes += 1
        other.same = one
        one.apart |= other.apart


def _conflict(one: Factor, other: Factor) -> bool:
    """Whether some rule keeps two factors apart."""
    if one is other:
        return False
    places: dict[int, set[tuple[int, ...]]] = {}
    for rule, place in one.apart:
        places.setdefault(rule, set()).add(place)
    return any(place not in places.get(rule, {place}) for rule, place in other.apart)
