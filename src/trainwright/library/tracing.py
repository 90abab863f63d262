"""A PyTorch module as a model."""

from importlib.util import find_spec
from typing import Any

from trainwright.errors import BadInput


def trace(module: Any, example_inputs: Any) -> Any:
    """A module as a graph with kernels, from what it does with the example inputs; needs PyTorch.

    See `trainwright.runtime.tracing.trace`, whose types a type checker sees here.
    """
    if find_spec("torch") is None:
        raise BadInput("trainwright.trace", "torch", "is not installed", "pip install 'trainwright[run]'")
    from trainwright.runtime.tracing.trace import trace as traced

    return traced(module, example_inputs)
