"""Refusal of splits that divide some results of an operator and copy others made from the same tensor.

The gradient of that tensor would be a share on each device from the divided results, plus the whole from the
copied ones: no single reduction is right for both. Products with weights count the whole once instead.
"""

from trainwright.errors import BadInput
from trainwright.model.graph import Op, served_results
from trainwright.program.builder import Builder


def check_mixed_results(builder: Builder) -> None:
    """Raise if a tensor goes into results of which a plan splits some and copies others."""
    done: set[tuple[int, int]] = set()
    for index, instance in enumerate(builder.instances):
        key = (id(instance.op), id(builder.placed[index]))
        if key not in done and instance.op.serves:
            done.add(key)
            _check(builder, index, instance.op)


def _check(builder: Builder, index: int, op: Op) -> None:
    inputs = () if op.kind == "matmul" else op.inputs
    for tensor in (*inputs, *op.weights):
        split: dict[frozenset[int], str] = {}
        for result in served_results(op, tensor.name):
            layout = builder.layout(index, result, "written")
            axes = frozenset(axis for _, axes in layout.splits for axis in axes)
            split.setdefault(axes, result.name)
        if len(split) > 1:
            raise BadInput(
                f"plan: op {builder.instances[index].name}", tensor.name,
                f"goes into {' and '.join(split.values())}, which the plan splits in different ways",
                "split the operator along a dim that all of these results have",
            )  # fmt: skip
