"""Operators carried out: forward, and back through what forward has left."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
import torch.nn.functional as F

from trainwright.model.graph import NO_GRADIENT
from trainwright.runtime.context import Context, trace
from trainwright.runtime.frame import Frame
from trainwright.runtime.kernels.experts import (
    carries,
    grouped_weight_gradients,
    project_grouped,
    project_grouped_back,
)
from trainwright.runtime.kernels.matmul import (
    Projection,
    project,
    project_back,
    projections_of,
    weight_gradients,
)
from trainwright.runtime.operation import Operation
from trainwright.runtime.ring_attention import attend, attend_back
from trainwright.runtime.routed import experts_of
from trainwright.runtime.values import gradient_views, held_weights, incoming, read, write, write_all
from trainwright.runtime.work import IGNORED, Kernel, Meet, Span, Work, op_seed


@dataclass(slots=True, kw_only=True)
class Computer:
    """Carries out operations with kernels; counts the loss."""

    kernels: Mapping[str, Kernel]  # by the name of an operator's place
    names: Sequence[str]  # of places
    like: torch.Tensor  # of the dtype of computation, on the device
    read_values: Sequence[Sequence[str]] = ()  # by place: the names of the values that it reads
    dtypes: Mapping[str, torch.dtype] = field(default_factory=dict)  # of values that have another dtype
    seed: int = 0
    answer_weights: Mapping[str, float] = field(default_factory=dict)  # of each target, by its loss
    loss: float = 0.0
    forgets: bool = False  # whether no backward will follow
    drops: bool = True  # whether dropout is active in steps that have a backward
    projections: dict[int, tuple[Projection, ...]] = field(default_factory=dict)

    def run(self, operation: Operation, frame: Frame) -> None:
        """Carry out one operation."""
        kind, phase = operation.op.kind, operation.step.phase
        if kind == "matmul":
            _MATMUL[phase](self, operation, frame)
        elif kind == "grouped_matmul":
            self._grouped(operation, frame)
        elif operation.ring is not None:
            made = partial(self._made, operation, frame)
            (attend_back if phase == "I" else attend)(operation, frame, made, forgets=self.forgets)
        elif kind == "loss" and not operation.op.contracted:
            (self._number_back if phase in "IW" else self._number)(operation, frame)
        elif kind == "loss":
            (self._loss_back if phase in "IW" else self._loss)(operation, frame)
        elif phase in "IW":
            self._back(operation, frame)
        else:
            self._forward(operation, frame)

    def _listed(self, operation: Operation) -> tuple[Projection, ...]:
        found = self.projections.get(id(operation.op))
        if found is None:
            found = self.projections[id(operation.op)] = projections_of(operation.op)
        return found

    def _matmul(self, operation: Operation, frame: Frame) -> None:
        source = read(operation.inputs[0], frame)
        learns = any(each.counts for each in operation.weights)
        if operation.keeps_input and learns and operation.step.phase != "N":
            frame.contexts[operation.cell] = source
        weights = held_weights(operation, frame)
        adds = {each.name: each.adds for each in operation.weights}
        with torch.no_grad():
            found = project(source, self._listed(operation), weights, adds)
        write_all(operation, frame, found)

    def _matmul_inputs(self, operation: Operation, frame: Frame) -> None:
        if not operation.writes:
            return
        gradients = [
            each if counts else None
            for each, counts in zip(incoming(operation, frame), operation.counted, strict=True)
        ]
        weights = held_weights(operation, frame)
        (written,) = operation.writes
        with torch.no_grad():
            found = project_back(gradients, self._listed(operation), weights)
        if found is None:
            given = operation.inputs[0]
            assert given is not None
            found = next(iter(weights.values())).new_zeros(given.shape)
        write(written, frame, found)

    def _matmul_weights(self, operation: Operation, frame: Frame) -> None:
        kept = operation.keeps_input
        source = frame.contexts.pop(operation.cell) if kept else read(operation.inputs[0], frame)
        totals = gradient_views(operation, frame)
        if not totals:
            return
        listed = [
            each if each.bias is None or each.bias.name in totals else _without_bias(each)
            for each in self._listed(operation)
        ]
        with torch.no_grad():
            gradients = incoming(operation, frame)
            if source.dtype != next(iter(totals.values())).dtype:
                source, gradients = source.float(), [None if g is None else g.float() for g in gradients]
            weight_gradients(source, gradients, listed, totals)

    def _grouped(self, operation: Operation, frame: Frame) -> None:
        """What experts make of their rows, or the gradients of that."""
        block, phase = operation.step.block, operation.step.phase
        listed = self._listed(operation)
        experts = experts_of(frame, block, dict(operation.rows))
        carried = operation.op.inputs[0].name == "dispatched"
        with torch.no_grad():
            if phase == "I":
                weights = held_weights(operation, frame)
                found = project_grouped_back(incoming(operation, frame), experts, listed, weights)
                if carried:
                    shares = frame.share_gradients.pop(block).to(found.dtype)
                    found = torch.cat((found, shares.unsqueeze(-1)), dim=-1)
                write(operation.writes[0], frame, found)
                return
            rows = read(operation.inputs[0], frame)
            if carried:
                frame.shares[block] = rows[:, -1]
                rows = rows[:, :-1]
            if phase == "W":
                totals = gradient_views(operation, frame)
                if not totals:
                    return
                given = incoming(operation, frame)
                if rows.dtype != next(iter(totals.values())).dtype:
                    rows, given = rows.float(), [None if g is None else g.float() for g in given]
                grouped_weight_gradients(rows, given, experts, listed, totals)
                return
            adds = {each.name: each.adds for each in operation.weights}
            weights = held_weights(operation, frame)
            write_all(operation, frame, project_grouped(rows, experts, listed, weights, adds))

    def _made(
        self,
        operation: Operation,
        frame: Frame,
        inputs: Sequence[torch.Tensor],
        weights: Sequence[torch.Tensor],
        keys: Span | None = None,
        meet: Meet | None = None,
    ) -> tuple[torch.Tensor, ...]:
        """What the operator's kernel makes; of an attention, with a block of keys that `meet` is told of."""
        name = self.names[operation.step.instance]
        at = operation.at if keys is None else {**operation.at, operation.op.contracted[0]: keys}
        work = Work(
            op=operation.op, sizes=operation.sizes, at=at, inputs=tuple(inputs), meet=meet,
            weights={each.name: w for each, w in zip(operation.weights, weights, strict=True)},
            adds={each.name: each.adds for each in operation.weights}, seed=op_seed(self.seed, name),
            sample=frame.microbatch * operation.sizes["batch"], learns=self.drops and not self.forgets,
        )  # fmt: skip
        return self.kernels[name](work)

    def _traced(self, operation: Operation, frame: Frame) -> tuple[tuple[torch.Tensor, ...], Context]:
        """The results, and PyTorch's graph of how they were made."""
        inputs = [self._source(operation, at, frame) for at in range(len(operation.inputs))]
        if carries(operation.op):
            inputs[-1] = frame.shares[operation.step.block]
        held = held_weights(operation, frame)
        lent = [held[each.name] for each in operation.weights if each.parcel.shards_weights]
        return trace(
            lambda given, weights: self._made(operation, frame, given, weights),
            inputs,
            list(held.values()),
            lent,
            {at for at, each in enumerate(operation.op.inputs) if each.element in NO_GRADIENT},
            {at for at, each in enumerate(operation.weights) if not each.parcel.trained},
        )

    def _source(self, operation: Operation, at: int, frame: Frame) -> torch.Tensor:
        """An input; where a backward does not read it, zeros stand for it."""
        given = operation.inputs[at]
        if given is None or (not given.candidates and not given.name):
            return self._zeros(operation, at)
        return read(given, frame)

    def _zeros(self, operation: Operation, at: int) -> torch.Tensor:
        """Zeros instead of an input or its gradient, in the dtype of that value."""
        given, name = operation.inputs[at], self.read_values[operation.step.instance][at]
        dtype = self.dtypes.get(name, self.like.dtype)
        return self.like.new_zeros(given.shape if given else (), dtype=dtype)

    def _forward(self, operation: Operation, frame: Frame) -> None:
        phase = operation.step.phase
        if phase == "N" or self.forgets or (phase == "F" and operation.recompute):
            with torch.no_grad():
                inputs = [
                    frame.shares[operation.step.block] if _is_share(operation, at) else read(given, frame)
                    for at, given in enumerate(operation.inputs)
                ]
                weights = list(held_weights(operation, frame).values())
                found = self._made(operation, frame, inputs, weights)
        else:
            found, frame.contexts[operation.cell] = self._traced(operation, frame)
        write_all(operation, frame, found)

    def _back(
        self, operation: Operation, frame: Frame, gradients: list[torch.Tensor | None] | None = None
    ) -> None:
        """The backward of an operator, from the gradients of its results or from those that have come."""
        context = frame.contexts.pop(operation.cell, None) or self._traced(operation, frame)[1]
        came = incoming(operation, frame) if gradients is None else gradients
        to_inputs, to_weights = context.back(came)
        if carries(operation.op):
            grad = to_inputs[-1]
            assert grad is not None
            before = frame.share_gradients.get(operation.step.block)
            frame.share_gradients[operation.step.block] = grad if before is None else before + grad
        for each in operation.writes:
            grad = to_inputs[each.index]
            assert operation.inputs[each.index] is not None
            write(each, frame, self._zeros(operation, each.index) if grad is None else grad)
        if operation.gives_weights:
            totals = gradient_views(operation, frame)
            for held, grad in zip(operation.weights, to_weights, strict=True):
                if grad is not None and held.name in totals:
                    totals[held.name].add_(grad)

    def _weight(self, operation: Operation) -> float:
        """What each answer of a loss counts in the loss of a step."""
        return self.answer_weights.get(self.names[operation.step.instance], 1.0)

    def _number(self, operation: Operation, frame: Frame) -> None:
        """A term of the loss that is one number."""
        self._forward(operation, frame)
        if operation.reports:
            self.loss += float(read(operation.inputs[0], frame)) * self._weight(operation)

    def _number_back(self, operation: Operation, frame: Frame) -> None:
        self._back(operation, frame, [self.like.new_tensor(self._weight(operation))])

    def _loss(self, operation: Operation, frame: Frame) -> None:
        given = operation.inputs[0]
        if operation.statistics is not None:
            found = frame.read(operation.statistics)
            self._close(operation, frame, found[..., 0].log() - found[..., 1])
            return
        logits = read(given, frame)
        targets = _targets(operation, frame)
        frame.contexts[operation.cell] = logits
        if operation.writes_statistics is not None:
            frame.write(operation.writes_statistics, _statistics(operation, logits, targets))
        elif operation.writes:
            losses = F.cross_entropy(
                logits.flatten(0, -2).float(), targets.flatten(), reduction="none", ignore_index=IGNORED,
                label_smoothing=operation.op.smoothing,
            )  # fmt: skip
            self._close(operation, frame, losses.view(targets.shape))

    def _close(self, operation: Operation, frame: Frame, losses: torch.Tensor) -> None:
        """Write the loss of every target, and count it."""
        losses = losses * (_targets(operation, frame) != IGNORED)
        if operation.reports:
            self.loss += float(losses.double().sum()) * self._weight(operation)
        write_all(operation, frame, (losses,))

    def _loss_back(self, operation: Operation, frame: Frame) -> None:
        logits: torch.Tensor = frame.contexts.pop(operation.cell)
        targets = _targets(operation, frame)
        (low, high), counts = operation.at[operation.op.contracted[0]], targets != IGNORED
        if operation.statistics is not None:
            total = frame.read(operation.statistics)[..., :1]
            shares = (logits.double().exp() / total).to(logits.dtype)
        else:
            shares = logits.softmax(-1)
        here = (targets >= low) & (targets < high)
        places = ((targets - low) * here).unsqueeze(-1)
        smoothing = operation.op.smoothing
        shares.scatter_add_(-1, places, -(1.0 - smoothing) * here.unsqueeze(-1).to(shares.dtype))
        if smoothing:
            shares.sub_(smoothing / _classes(operation))
        shares.mul_((counts * self._weight(operation)).unsqueeze(-1).to(shares.dtype))
        write(operation.writes[0], frame, shares)


_MATMUL = {
    "F": Computer._matmul, "N": Computer._matmul, "R": Computer._matmul,
    "I": Computer._matmul_inputs, "W": Computer._matmul_weights,
}  # fmt: skip


def _is_share(operation: Operation, index: int) -> bool:
    return operation.op.inputs[index].name == "probabilities"


def _without_bias(each: Projection) -> Projection:
    return Projection(output=each.output, weight=each.weight, bias=None, summed=each.summed, made=each.made)


def _targets(operation: Operation, frame: Frame) -> torch.Tensor:
    """The right answers for the part at work."""
    tensor = frame.targets[operation.step.name]
    for axis, dim in enumerate(operation.op.output.dims):
        low, high = operation.at[dim]
        tensor = tensor.narrow(axis, low, high - low)
    return tensor


def _classes(operation: Operation) -> int:
    return operation.sizes[operation.op.contracted[0]]


def _statistics(operation: Operation, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Of every target: the sum of exponentials, and the logit of the right answer; both add up over parts.

    In double precision, where exponentials of logits do not overflow below 700. With label smoothing, the
    right answer is a mean of all classes, in which the right one counts most.
    """
    low, high = operation.at[operation.op.contracted[0]]
    wide = logits.double()
    here = (targets >= low) & (targets < high)
    right = wide.gather(-1, ((targets - low) * here).unsqueeze(-1)).squeeze(-1) * here
    smoothing = operation.op.smoothing
    if smoothing:
        right = (1.0 - smoothing) * right + smoothing / _classes(operation) * wide.sum(-1)
    return torch.stack((wide.exp().sum(-1), right), dim=-1)
