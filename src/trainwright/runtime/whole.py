"""A graph as an ordinary PyTorch module, on one device: what every plan of it must equal."""

import hashlib
from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import nn

from trainwright.model.flow import Instance, recycled, wire
from trainwright.model.graph import Graph, dim_sizes
from trainwright.program.reference import weight_key
from trainwright.runtime.kernels import kernel_of
from trainwright.runtime.kernels.experts import carries, choose, project_grouped
from trainwright.runtime.kernels.matmul import project, projections_of
from trainwright.runtime.work import IGNORED, Kernel, Work

Initial = Callable[[str, Sequence[int]], torch.Tensor]  # of a key and the sizes of a weight


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
        initial = build_initial(graph, seed)
        for instance in self.instances:
            sizes = self._sizes(instance, 1)
            for weight in instance.op.weights:
                key = weight_key(graph, instance, weight)
                if module_name(key) not in self.table:
                    shape = [sizes[dim] for dim in weight.dims]
                    self.table[module_name(key)] = nn.Parameter(initial(key, shape))

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
        rows = values.get(f"{instance.block}/dispatched")
        if op.kind == "matmul":
            return project(inputs[0], projections_of(op), weights, {})
        if op.kind == "grouped_matmul":
            experts = choose(values[f"{instance.block}/router.out"], sizes["top_k"]).flatten()
            taken = inputs[0][:, :-1] if inputs[0] is rows else inputs[0]
            return project_grouped(taken, experts, projections_of(op), weights, {})
        if carries(op) and rows is not None:
            inputs[-1] = rows[:, -1]
        at = {dim: (0, size) for dim, size in sizes.items()}
        work = Work(op=op, sizes=sizes, at=at, inputs=tuple(inputs), weights=weights)
        return self.kernels[instance.name](work)


def parameter_key(graph: Graph, instance: Instance, name: str) -> str:
    """The name of a weight as a module may have it: without dots."""
    weight = next(each for each in instance.op.weights if each.name == name)
    return module_name(weight_key(graph, instance, weight))


def module_name(key: str) -> str:
    """The key of a weight as a module may name it."""
    return key.replace(".", ":")


def build_initial(graph: Graph, seed: int = 0) -> Initial:
    """The first value of every weight, from its key: ones for scales, zeros for biases, else small numbers.

    Small numbers have the deviation 0.02 (Radford et al. 2019).
    """
    kinds = {
        weight_key(graph, instance, weight): (instance.op.kind, weight.name)
        for instance in wire(graph)
        for weight in instance.op.weights
    }

    def initial(key: str, sizes: Sequence[int]) -> torch.Tensor:
        kind, name = kinds[key]
        if name.endswith(".bias"):
            return torch.zeros(*sizes)
        if kind == "norm":
            return torch.ones(*sizes)
        return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed_of(seed, key))) * 0.02

    return initial


def seed_of(*words: object) -> int:
    """A seed that depends on some words alone."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, words)).encode()).digest()[:7], "big")
