"""One operator's work in numbers: what it is given, and what it hands back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainwright.model.graph import Op, Tensor
from trainwright.program.labelled import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One operator's work: what it reads, what of it is its to count, and how large dims are as a whole.

    `adds` says whether a weight is added here, or by another device; `counted` whether the gradient of each
    result flows into inputs here. `targets` are the right answers, for a loss.
    """

    op: Op
    sizes: Mapping[str, int]
    weights: Mapping[str, Part] = field(default_factory=dict)
    inputs: Sequence[Part | None] = ()
    adds: Mapping[str, bool] = field(default_factory=dict)
    counted: Sequence[bool] = ()
    targets: Part | None = None
    statistics: Part | None = None

    def given(self, index: int = 0) -> Part:
        """An input, which must be there."""
        part = self.inputs[index]
        assert part is not None, f"{self.op.name} lacks {self.op.inputs[index].name}"
        return part

    def counts(self, index: int) -> bool:
        """Whether the gradient of a result is counted here."""
        return not self.counted or self.counted[index]


@dataclass(frozen=True, slots=True, kw_only=True)
class Back:
    """Gradients that an operator hands on: of its inputs in order, of its weights by name."""

    inputs: tuple[Part | None, ...] = ()
    weights: Mapping[str, Part] = field(default_factory=dict)


Gradients = Sequence[Part | None]  # of each result


def results(op: Op) -> tuple[Tensor, ...]:
    """All that an operator writes."""
    return (op.output, *op.extra_outputs)
