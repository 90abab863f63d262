"""The operators of a mixture of experts, which are the catalog's."""

from collections.abc import Iterator, Mapping

import torch
from torch.fx import Node

from trainwright.errors import BadInput
from trainwright.model.architecture import Architecture
from trainwright.model.graph import Op, Tensor
from trainwright.model.moe import moe_ops
from trainwright.runtime.kernels import kernel_of
from trainwright.runtime.kernels.matmul import project, projections_of
from trainwright.runtime.tracing.draft import Draft
from trainwright.runtime.tracing.nodes import op_name, operand, shape
from trainwright.runtime.work import Kernel, Work

# The catalog's names of a mixture's weights, in the order of its node, and how their axes lie there.
_WEIGHTS = {
    "router.weight": (1, 0),
    "experts.gate.weight": (0, 2, 1),
    "experts.up.weight": (0, 2, 1),
    "experts.down.weight": (0, 2, 1),
}


def is_mixture(draft: Draft) -> bool:
    """Whether a draft is a mixture of experts."""
    return op_name(draft.group.nodes[0]) == "mixture"


def mixture_ops(draft: Draft, source: Tensor) -> tuple[Op, ...]:
    """Route, dispatch, experts, combine: the last one writes the result."""
    if source.dims != ("batch", "seq", "hidden"):
        raise BadInput(
            "experts", source.name, f"are given a tensor over {', '.join(source.dims)}",
            "give them hidden vectors of tokens: batch, seq, hidden",
        )  # fmt: skip
    experts, width, hidden = shape(operand(draft.group.nodes[0], 2))
    arch = Architecture(
        name="experts", layers=1, hidden=hidden, heads=1, vocab=1, gated=True, experts=experts,
        expert_ffn=width, top_k=mixture_count(draft),
    )  # fmt: skip
    return moe_ops(arch, source)


def mixture_count(draft: Draft) -> int:
    """The experts that each token goes through."""
    count = draft.group.nodes[0].args[5]
    assert isinstance(count, int)
    return count


def mixture_weights(draft: Draft) -> Iterator[tuple[str, Node, tuple[int, ...]]]:
    """The name of each weight, the parameter that it is, and the order of that one's axes."""
    for place, (name, order) in enumerate(_WEIGHTS.items(), start=1):
        yield name, operand(draft.group.nodes[0], place), order


def mixture_kernels(ops: Mapping[str, Op]) -> Iterator[tuple[str, Kernel]]:
    """Kernels for all but the experts' products, whose rows the runtime deals out."""
    for name, op in ops.items():
        if op.kind == "matmul":
            yield name, _project
        elif op.kind != "grouped_matmul":
            yield name, kernel_of(op)


def _project(work: Work) -> tuple[torch.Tensor, ...]:
    return project(work.inputs[0], projections_of(work.op), work.weights, work.adds)
