"""A graph as an ordinary PyTorch module, on one device: what every plan of it must equal."""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import nn

from trainwright.model.flow import Instance, recycled, wire
from trainwright.model.graph import Graph, dim_sizes
from trainwright.runtime.compute import IGNORED
from trainwright.runtime.kernels import kernel_of
from trainwright.runtime.kernels.experts import grouped, routes_of
from trainwright.runtime.kernels.matmul import project, projections_of
from trainwright.runtime.work import Kernel, Work


def build_kernels(graph: Graph) -> dict[str, Kernel]:
    """The kernels of a catalog graph, by the name of each operator's place; matmuls and losses need none."""
    return {
        each.name: kernel_of(each.op)
        for each in wire(graph)
        if each.op.kind not in ("matmul", "grouped_matmul", "loss")
    }


class Whole(nn.Module):
    """All operators of a graph, one after another; its parameters are named as checkpoints name them."""

    def __init__(self, graph: Graph, kernels: Mapping[str, Kernel], seq: int, seed: int = 0) -> None:
        super().__init__()
        self.graph, self.kernels, self.seq = graph, kernels, seq
        self.instances = wire(graph)
        self.table = nn.ParameterDict()
        generator = torch.Generator().manual_seed(seed)
        for instance in self.instances:
            sizes = self._sizes(instance, 1)
            for weight in instance.op.weights:
                key = parameter_key(graph, instance, weight.name)
                if key not in self.table:
                    shape = [sizes[dim] for dim in weight.dims]
                    self.table[key] = nn.Parameter(initial(weight.name, shape, instance, generator))

    def _sizes(self, instance: Instance, batch: int) -> dict[str, int]:
        return dim_sizes(self.graph, self.graph.segments[instance.segment], batch, self.seq)

    def forward(self, given: Mapping[str, torch.Tensor], targets: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The sum of the losses of all targets that count."""
        given = dict(given)
        for number in range(self.graph.passes):
            last = number == self.graph.passes - 1
            with torch.set_grad_enabled(last and torch.is_grad_enabled()):
                values, loss = self._pass(given, targets)
            for wanted, name in recycled(self.instances).items() if not last else ():
                given[wanted] = values[name].detach()
        return loss

    def _pass(
        self, given: Mapping[str, torch.Tensor], targets: Mapping[str, torch.Tensor]
    ) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        values: dict[str, torch.Tensor] = dict(given)
        total = torch.zeros((), dtype=torch.float64)
        batch = next(iter(given.values())).shape[0]
        for instance in self.instances:
            if instance.op.kind == "loss":
                logits, wanted = values[instance.inputs[0]], targets[instance.name]
                losses = F.cross_entropy(
                    logits.flatten(0, -2).float(), wanted.flatten(), reduction="none", ignore_index=IGNORED
                )
                total = total + losses.double().sum()
                continue
            found = self._results(instance, values, batch)
            values |= dict(zip(instance.outputs, found, strict=True))
        return values, total

    def _results(
        self, instance: Instance, values: Mapping[str, torch.Tensor], batch: int
    ) -> Sequence[torch.Tensor]:
        op, sizes = instance.op, self._sizes(instance, batch)
        weights = {
            each.name: self.table[parameter_key(self.graph, instance, each.name)] for each in op.weights
        }
        inputs = [values[name] for name in instance.inputs]
        if op.kind == "matmul":
            return project(inputs[0], projections_of(op), weights, {})
        at = {dim: (0, size) for dim, size in sizes.items()}
        work = Work(op=op, sizes=sizes, at=at, inputs=tuple(inputs), weights=weights)
        if op.kind == "grouped_matmul":
            return grouped(work, routes_of(values, instance, sizes))
        return self.kernels[instance.name](work)


def parameter_key(graph: Graph, instance: Instance, name: str) -> str:
    """The name under which a weight is stored; a tied one has the same at all of its places."""
    return (name if name in graph.tied else f"{instance.block}/{name}").replace(".", ":")


def initial(name: str, shape: Sequence[int], instance: Instance, generator: torch.Generator) -> torch.Tensor:
    """Ones for scales, zeros for biases, and small numbers for the rest (Radford et al. 2019)."""
    if instance.op.kind == "norm":
        return torch.zeros(*shape) if name.endswith("bias") else torch.ones(*shape)
    if name.endswith(".bias"):
        return torch.zeros(*shape)
    return torch.randn(*shape, generator=generator) * 0.02
