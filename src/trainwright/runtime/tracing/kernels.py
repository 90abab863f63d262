"""The kernel of each operator, from its draft."""

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch.fx import Node

from trainwright.runtime.tracing.axes import VIEWS, Reading, rename
from trainwright.runtime.tracing.draft import Draft
from trainwright.runtime.tracing.factors import Axes, Factor, leaves
from trainwright.runtime.tracing.groups import class_axis, is_entropy, source_of
from trainwright.runtime.tracing.local import Causal, attention, dropout, product, table_rows
from trainwright.runtime.tracing.nodes import arguments, call_with, op_name, operand
from trainwright.runtime.tracing.replay import Replay, Step, Stored, build_stored, call, expand, reshape
from trainwright.runtime.tracing.sample_sizes import SIZED
from trainwright.runtime.tracing.traced import Inputs
from trainwright.runtime.work import IGNORED, Kernel, Work

_PERMUTES = {"permute", "transpose", "t", "swapaxes", "movedim", "numpy_T"}
_NARROWED = {"slice", "select", "narrow", "cat", "getitem"}


def resolved(axes: Axes) -> Axes:
    """Axes with their uncut factors."""
    return tuple(leaves(axis) for axis in axes)


def build_kernel(
    reading: Reading,
    draft: Draft,
    names: Mapping[Factor, str],
    weight_names: Mapping[Node, str],
    constants: Mapping[Node, torch.Tensor],
    causal: Mapping[Node, Causal | None],
    batch: int,
) -> Kernel:
    """The kernel that carries out a draft's nodes on any part of its tensors."""
    own = {factor: names[factor] for factor in draft.factors}
    if is_entropy(draft.group):
        return _loss_kernel(reading, draft)
    steps = _steps(reading, draft, weight_names, causal)
    read = {each for node, _ in steps for each in node.all_input_nodes}
    sized = any(_is_sized(node) for node in (*read.intersection(constants), *(node for node, _ in steps)))
    return Replay(
        names=own,
        inputs=tuple(_stored(reading, draft, node) for node in draft.inputs),
        weights={weight_names[node]: _stored(reading, draft, node) for node in draft.weights},
        constants={
            node: (value, resolved(reading.axes[node])) for node, value in constants.items() if node in read
        },
        steps=steps,
        outputs=tuple(_stored(reading, draft, node) for node in draft.outputs),
        samples=batch if sized else 0,
    )


def _is_sized(node: Node) -> bool:
    """Whether what a node does depends on the number of samples; views are found from axes."""
    return bool(node.meta.get(SIZED)) and op_name(node) not in VIEWS and node.target is not rename


def _stored(reading: Reading, draft: Draft, node: Node) -> Stored:
    return build_stored(node, draft.order[node], resolved(reading.axes[node]))


def _steps(
    reading: Reading, draft: Draft, weight_names: Mapping[Node, str], causal: Mapping[Node, Causal | None]
) -> tuple[tuple[Node, Step], ...]:
    skipped = {arguments(node)["attn_mask"] for node, found in causal.items() if found is not None}
    given = {*draft.inputs, *draft.weights}
    nodes: dict[Node, None] = {}

    def collect(node: Node) -> None:
        if node in nodes or node in given or node.op == "placeholder" or node in skipped:
            return
        for each in node.all_input_nodes:
            collect(each)
        nodes[node] = None

    for node in draft.group.nodes:
        collect(node)
    return tuple(
        (node, _step(reading, node, weight_names, causal, place)) for place, node in enumerate(nodes)
    )


def _step(
    reading: Reading,
    node: Node,
    weight_names: Mapping[Node, str],
    causal: Mapping[Node, Causal | None],
    place: int,
) -> Step:
    name = op_name(node)
    if name in VIEWS or node.target is rename:
        return view_step(reading, node)
    if node in reading.notes:
        return call(node, None)
    if name == "dropout":
        return dropout(reading, node, place)
    if name == "embedding":
        table = node.args[0]
        assert isinstance(table, Node)
        return table_rows(reading, node, weight_names.get(source_of(table), ""))
    if name in ("linear", "addmm"):
        return product(node, weight_names)
    if name == "scaled_dot_product_attention":
        return attention(reading, node, causal[node], place)
    return call(node, resolved(reading.axes[node]) if name in _NARROWED else None)


def view_step(reading: Reading, node: Node) -> Step:
    """What a view does on a part."""
    name = op_name(node)
    if name in _PERMUTES or node.target is rename:
        return call(node, None)
    if name in ("expand", "expand_as"):
        return expand(node, resolved(reading.axes[node]))
    return reshape(node, resolved(reading.axes[node]))


def _loss_kernel(reading: Reading, draft: Draft) -> Kernel:
    """The cross entropy of each answer; none for those that do not count."""
    (source,) = draft.inputs
    (classes,) = draft.contracted
    place = draft.order[source].index(classes)
    smoothing = float(arguments(draft.group.nodes[0])["label_smoothing"])

    def kernel(work: Work) -> tuple[torch.Tensor, ...]:
        logits, targets = work.inputs
        wide = logits.movedim(place, -1)
        found = F.cross_entropy(
            wide.reshape(-1, wide.shape[-1]), targets.reshape(-1), reduction="none", ignore_index=IGNORED,
            label_smoothing=smoothing,
        )  # fmt: skip
        return (found.reshape(targets.shape),)

    return kernel


def build_targets(
    reading: Reading, draft: Draft, inputs: Mapping[Node, str], constants: Mapping[Node, torch.Tensor]
) -> Callable[[Inputs], torch.Tensor]:
    """What computes the right answers of a loss from the module's inputs.

    The nodes know one number of samples, so more of them are taken in turns, and fewer are repeated.
    """
    (node,) = draft.group.nodes
    wanted, classes = operand(node, 1), class_axis(reading, node)
    factors = [
        each for axis in reading.axes[operand(node, 0)] if axis is not classes for each in leaves(axis)
    ]
    order = [factors.index(factor) for factor in draft.order[node]]
    ignored = int(arguments(node)["ignore_index"])
    samples = leaves(reading.axes[next(iter(inputs))][0])[0]
    along = draft.order[node].index(samples) if samples in draft.order[node] else 0

    def run(given: Inputs) -> torch.Tensor:
        values = {each: given[name] for each, name in inputs.items() if name in given}
        device = next(iter(values.values())).device
        found = _evaluated(wanted, values | {each: value.to(device) for each, value in constants.items()})
        found = found.reshape([factor.size for factor in factors]).permute(order)
        return torch.where(found == ignored, IGNORED, found)

    def targets(given: Inputs) -> torch.Tensor:
        count = next(iter(given.values())).shape[0]
        rows = torch.arange(-(-count // samples.size) * samples.size) % count
        parts = [
            run({name: tensor[part.to(tensor.device)] for name, tensor in given.items()})
            for part in rows.view(-1, samples.size)
        ]
        return torch.cat(parts, along).narrow(along, 0, count)

    return targets


def _evaluated(node: Node, known: dict[Node, torch.Tensor]) -> torch.Tensor:
    """The tensor of a node, from those that are known."""
    if node not in known:
        known[node] = call_with(node, lambda each: _evaluated(each, known))
    return known[node]
