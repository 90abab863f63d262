"""A stack with the optimizer and the gradient dtype that a user states."""

from dataclasses import replace

from trainwright.cost.constants import Stack
from trainwright.errors import BadInput
from trainwright.stack.capability import Capability
from trainwright.stack.optimizer import GRADIENT_BYTES, OPTIMIZERS


def check_optimizer(
    capability: Capability, optimizer: str, grad_dtype: str, options: tuple[str, str], other: str = "--stack"
) -> None:
    """Raise for what a stack does not have, with a list of what it has; `options` are the names to say."""
    for option, value, known in (
        (options[0], optimizer, capability.optimizers),
        (options[1], grad_dtype, capability.grad_dtypes),
    ):
        if value and value not in known:
            rule = f"{capability.title} has {', '.join(known)}"
            remedy = "use it" if len(known) == 1 else "use one of these"
            raise BadInput(option, value, rule, f"{remedy}, or another {other}")


def with_optimizer(stack: Stack, optimizer: str, grad_dtype: str) -> Stack:
    """The stack with an optimizer and a gradient dtype; what is empty stays the stack's own.

    Gradients in fp32 are what a stack keeps at least: some keep 16-bit ones as well.
    """
    if optimizer:
        choice = OPTIMIZERS[optimizer]
        if optimizer == "sgd" and stack.capability.plain_sgd:
            source = f"{stack.capability.title} has it without momentum"
            choice = replace(choice, moments=0, moment_bytes=0.0, source=source)
        stack = replace(stack, optimizer=choice)
    if grad_dtype:
        size = GRADIENT_BYTES[grad_dtype]
        kept = max(size, stack.gradient_bytes) if grad_dtype == "fp32" else size
        stack = replace(stack, grad_dtype=grad_dtype, gradient_bytes=kept, reduce_bytes=size)
    return stack


def render_optimizer(stack: Stack) -> str:
    """What was stated, in words; nothing if nothing was."""
    words = []
    if stack.optimizer:
        words.append(f"optimizer {stack.optimizer.name} ({stack.optimizer.source})")
    if stack.grad_dtype:
        words.append(f"gradients accumulated and reduced in {stack.grad_dtype}")
    return f"State: {', '.join(words)}." if words else ""
