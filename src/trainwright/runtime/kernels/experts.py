"""Tokens on their way to experts and back.

What is routed lies in rows: one for each token and each of its experts that a device has, ordered by sample,
place and choice. On its way to an expert a row has one more column, the probability that weighs its result.
"""

from collections.abc import Iterator, Mapping, Sequence

import torch

from trainwright.model.graph import Op
from trainwright.runtime.kernels.matmul import Projection
from trainwright.runtime.work import Work


def choose(logits: torch.Tensor, count: int) -> torch.Tensor:
    """The experts of each token, the likeliest first."""
    return logits.topk(count, dim=-1).indices


def dispatch(work: Work) -> tuple[torch.Tensor, ...]:
    """Each token once for each of its experts, with the probability of that expert among those chosen."""
    hidden, logits = work.inputs
    best = logits.topk(work.sizes["top_k"], dim=-1).values
    shares = best.softmax(-1).unsqueeze(-1)
    rows = hidden.unsqueeze(-2).expand(*best.shape, hidden.shape[-1])
    return (torch.cat((rows, shares), dim=-1).flatten(0, -2),)


def combine(work: Work) -> tuple[torch.Tensor, ...]:
    """What the experts of each token have made, added up, with what is shared by all tokens."""
    routed, *shared = work.inputs
    shape = [work.length(dim) for dim in work.op.output.dims]
    total = routed.view(*shape[:-1], work.sizes["top_k"], shape[-1]).sum(-2)
    for each in shared:
        total = total + each
    return (total,)


def merge_neighbours(work: Work) -> tuple[torch.Tensor, ...]:
    """Four tokens in a row side by side, as one."""
    samples, tokens, *rest = work.inputs[0].shape
    quad = work.sizes["quad"]
    return (work.inputs[0].reshape(samples, tokens // quad, quad, *rest),)


def _of_experts(experts: torch.Tensor, count: int) -> Iterator[torch.Tensor]:
    """The rows of each expert, in order."""
    for number in range(count):
        yield torch.nonzero(experts == number).squeeze(-1)


def project_grouped(
    rows: torch.Tensor,
    experts: torch.Tensor,
    listed: Sequence[Projection],
    weights: Mapping[str, torch.Tensor],
    adds: Mapping[str, bool],
) -> tuple[torch.Tensor, ...]:
    """The results of every row, by the weights of its expert (counted from the first one here)."""
    found = []
    for each in listed:
        weight = weights[each.weight.name]
        total = rows.new_zeros(rows.shape[0], weight.shape[-1])
        for number, here in enumerate(_of_experts(experts, weight.shape[0])):
            result = rows[here] @ weight[number]
            if each.bias is not None and adds.get(each.bias.name, True):
                result = result + weights[each.bias.name][number]
            total = total.index_copy(0, here, result)
        found.append(total)
    return tuple(found)


def project_grouped_back(
    gradients: Sequence[torch.Tensor | None],
    experts: torch.Tensor,
    listed: Sequence[Projection],
    weights: Mapping[str, torch.Tensor],
) -> torch.Tensor:
    """The gradient of every row."""
    first = weights[listed[0].weight.name]
    total = first.new_zeros(experts.shape[0], first.shape[1])
    for each, gradient in zip(listed, gradients, strict=True):
        for number, here in enumerate(_of_experts(experts, first.shape[0]) if gradient is not None else ()):
            assert gradient is not None
            total.index_add_(0, here, gradient[here] @ weights[each.weight.name][number].t())
    return total


def grouped_weight_gradients(
    rows: torch.Tensor,
    gradients: Sequence[torch.Tensor | None],
    experts: torch.Tensor,
    listed: Sequence[Projection],
    totals: Mapping[str, torch.Tensor],
) -> None:
    """Add to `totals` the gradients of the experts' weights and biases."""
    for each, gradient in zip(listed, gradients, strict=True):
        weight = totals.get(each.weight.name)
        bias = totals.get(each.bias.name) if each.bias is not None else None
        held = weight if weight is not None else bias
        if gradient is None or held is None:
            continue
        for number, here in enumerate(_of_experts(experts, held.shape[0])):
            if weight is not None:
                weight[number].addmm_(rows[here].t(), gradient[here])
            if bias is not None:
                bias[number].add_(gradient[here].sum(0))


def carries(op: Op) -> bool:
    """Whether an operator weighs rows by the probability that travels with them."""
    return any(tensor.name == "probabilities" for tensor in op.inputs)
