"""What a module returns, from the values of its graph."""

from collections.abc import Callable

import torch
from torch.fx import Node

from trainwright.model.graph import Op, Tensor
from trainwright.runtime.tracing.axes import Reading
from trainwright.runtime.tracing.draft import Draft
from trainwright.runtime.tracing.groups import original
from trainwright.runtime.tracing.kernels import resolved, view_step
from trainwright.runtime.tracing.replay import Part, build_stored
from trainwright.runtime.tracing.traced import Output
from trainwright.runtime.work import Work


def build_output(reading: Reading, draft: Draft, node: Node, value: str) -> Output:
    """The output that a node is: a value of the graph, seen as the module returns it."""
    return Output(value=value, arrange=_arranged(reading, draft, node))


def _arranged(reading: Reading, draft: Draft, node: Node) -> Callable[[torch.Tensor], torch.Tensor]:
    made = original(node)
    path: list[Node] = []
    while node is not made:
        path.insert(0, node)
        node = node.all_input_nodes[0]
    order = draft.order[made]
    stored = build_stored(made, order, resolved(reading.axes[made]))
    names = {factor: f"dim{place}" for place, factor in enumerate(order)}

    def arrange(tensor: torch.Tensor) -> torch.Tensor:
        part = Part(_whole(tensor), names)
        values = {made: stored.load(part, tensor)}
        for view in path:
            values[view] = view_step(reading, view)(part, values)
        return values[path[-1] if path else made]

    return arrange


def _whole(tensor: torch.Tensor) -> Work:
    """The work of an operator that has a whole tensor."""
    sizes = {f"dim{place}": size for place, size in enumerate(tensor.shape)}
    op = Op(name="output", kind="elementwise", region="sequence", inputs=(), output=Tensor(name="", dims=()))
    return Work(
        op=op, sizes=sizes, at={name: (0, size) for name, size in sizes.items()}, inputs=(), weights={}
    )
