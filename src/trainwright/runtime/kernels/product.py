"""Products of two activations."""

import torch

from trainwright.runtime.work import Work


def multiply(work: Work) -> tuple[torch.Tensor, ...]:
    """The product of two inputs, summed over the contracted dims."""
    op = work.op
    letters = {dim: chr(ord("a") + number) for number, dim in enumerate(_dims(work))}
    read = ",".join("".join(letters[dim] for dim in tensor.dims) for tensor in op.inputs)
    written = "".join(letters[dim] for dim in op.output.dims)
    return (torch.einsum(f"{read}->{written}", *work.inputs),)


def _dims(work: Work) -> dict[str, None]:
    return dict.fromkeys(dim for tensor in (*work.op.inputs, work.op.output) for dim in tensor.dims)
