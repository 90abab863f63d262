"""How the software hides communication: which share of a move blocks compute, what the rest costs."""

from dataclasses import dataclass

from trainwright.cost.constants import Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class Hiding:
    """Of a move's time: the share that passes at all, the share of that which blocks compute, its lane."""

    passes: float = 1.0
    blocks: float = 1.0
    slows: float = 0.0
    lane: str = "model"


def hiding(stack: Stack, cause: str, phase: str, *, on: bool, stream: bool) -> Hiding:
    """What a stack does with a move of one cause in one phase; `on` is whether the plan overlaps at all.

    Forward sums over tensor-parallel ranks hide behind pieces of their own product, backward ones behind
    gradients of weights, streamed ones behind the operator that they feed. Sends and routed tokens are hidden
    in a share that is free.
    """
    if cause == "tp" and phase == "I":
        return Hiding(blocks=1.0 - stack.tp_overlap * on)
    if cause == "tp":
        return Hiding(passes=1.0 - stack.tp_forward_overlap * on)
    if cause == "cp" and stream:
        return Hiding(blocks=1.0 - stack.cp_overlap * on)
    if cause == "ep":
        return Hiding(passes=1.0 - stack.ep_overlap * on)
    if cause == "pp":
        return Hiding(passes=1.0 - stack.pp_overlap * on)
    return Hiding()
