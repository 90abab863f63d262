"""A traced module carried out whole in one process, operator by operator: what all plans must agree with."""

from collections.abc import Mapping
from dataclasses import replace

import torch

from trainwright.model.flow import Instance, wire
from trainwright.model.graph import dim_sizes
from trainwright.program.reference import weight_key
from trainwright.runtime.kernels.experts import carries, choose, project_grouped
from trainwright.runtime.kernels.matmul import projections_of
from trainwright.runtime.tracing.traced import Inputs, Traced
from trainwright.runtime.work import IGNORED, Work, op_seed


def evaluate(
    traced: Traced,
    parameters: Mapping[str, torch.Tensor],
    inputs: Inputs,
    seed: int = 0,
    *,
    drops: bool = True,
) -> dict[str, torch.Tensor]:
    """What the module returns, by name, from its parameters and inputs by name; without dropout if asked."""
    values = {value: given.load(inputs[given.name]) for value, given in traced.inputs.items()}
    counted: dict[str, torch.Tensor] = {}
    for instance in wire(traced.graph):
        work = replace(build_work(traced, instance, parameters, values, inputs, seed), learns=drops)
        values |= dict(zip(instance.outputs, results_of(traced, instance, work, values), strict=True))
        if instance.name in traced.targets:
            counted[instance.outputs[0]] = (work.inputs[-1] != IGNORED).sum()
    found: dict[str, torch.Tensor] = {}
    for name, output in traced.outputs.items():
        if output.value:
            found[name] = output.arrange(values[output.value])
            continue
        means = [(values[each].sum() / counted.get(each, 1), share) for each, share in output.terms]
        found[name] = sum((mean * share for mean, share in means), torch.tensor(output.constant))
    return found


def results_of(
    traced: Traced, instance: Instance, work: Work, values: Mapping[str, torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """What an operator writes; experts are given rows, one for each token and each of its experts."""
    op, rows = instance.op, values.get(f"{instance.block}/dispatched")
    if op.kind == "grouped_matmul":
        chosen = choose(values[f"{instance.block}/router.out"], work.sizes["top_k"]).flatten()
        given = work.inputs[0][:, :-1] if work.inputs[0] is rows else work.inputs[0]
        return project_grouped(given, chosen, projections_of(op), work.weights, {})
    if carries(op) and rows is not None:
        work = replace(work, inputs=(*work.inputs[:-1], rows[:, -1]))
    return traced.kernels[instance.name](work)


def build_work(
    traced: Traced,
    instance: Instance,
    parameters: Mapping[str, torch.Tensor],
    values: Mapping[str, torch.Tensor],
    inputs: Inputs,
    seed: int = 0,
) -> Work:
    """The whole work of one operator, on values that are known; a loss is given its targets too."""
    graph = traced.graph
    samples = next(iter(inputs.values())).shape[0]
    sizes = dim_sizes(graph, graph.segments[instance.segment], samples, traced.seq)
    weights = {}
    for weight in instance.op.weights:
        kept = traced.weights[weight_key(graph, instance, weight)]
        weights[weight.name] = kept.load(parameters[kept.names[0]])
    targets = [traced.targets[instance.name](inputs)] if instance.name in traced.targets else []
    return Work(
        op=instance.op,
        sizes=sizes,
        at={dim: (0, size) for dim, size in sizes.items()},
        inputs=(*(values[name] for name in instance.inputs), *targets),
        weights=weights,
        seed=op_seed(seed, instance.name),
    )
