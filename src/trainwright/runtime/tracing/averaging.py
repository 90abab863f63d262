"""Whether a loss is an average: the same for samples that are all there twice."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from trainwright.errors import BadInput
from trainwright.runtime.tracing.capture import Capture, example_arguments
from trainwright.runtime.tracing.nodes import op_name

_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3}  # relative; of narrower types the default
_NARROW = 5e-2


def check_average(module: nn.Module, example_inputs: Any, captured: Capture) -> None:
    """Refuse a loss that grows with the number of samples: a step would depend on the plan's microbatches.

    Cross entropies that are means need no check. A loss that depends on how samples are put together in
    microbatches (a product of means over them, say) passes: its step is the mean over microbatches.
    """
    plain = all(op_name(node) == "cross_entropy_loss" for node in captured.terms)
    on_meta = any(each.is_meta for each in module.parameters())
    if captured.objective is None or plain or on_meta:
        return
    place = captured.places[captured.objective.name]
    args, kwargs = example_arguments(example_inputs)
    twice = pytree.tree_map_only(torch.Tensor, lambda each: torch.cat([each, each]), (args, kwargs))
    with torch.no_grad(), _without_dropout(module):
        once, again = (_loss(module(*some, **more), place) for some, more in ((args, kwargs), twice))
    if once is None or again is None:
        return
    tolerance = _TOLERANCE.get(once.dtype, _NARROW)
    if not torch.allclose(once, again, rtol=tolerance, atol=tolerance):
        raise BadInput(
            f"loss of {captured.name}", f"{float(once):g} for the samples, {float(again):g} for them twice",
            "is not a mean over samples", "divide sums by the number of samples or of elements",
        )  # fmt: skip


def _loss(returned: Any, place: int) -> torch.Tensor | None:
    """The result of a module at a place among all, if it is one number."""
    leaves = [each for each in pytree.tree_leaves(returned) if isinstance(each, torch.Tensor)]
    found = leaves[place] if place < len(leaves) else None
    return found if found is not None and found.dim() == 0 else None


@contextmanager
def _without_dropout(module: nn.Module) -> Iterator[None]:
    """Lets a module give the same for the same inputs."""
    training = {each: each.training for each in module.modules() if isinstance(each, nn.Dropout)}
    for each in training:
        each.training = False
    try:
        yield
    finally:
        for each, before in training.items():
            each.training = before
