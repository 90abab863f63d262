"""The imbalance of experts that a user states.

It is the number of routed tokens of the rank that has most, relative to the mean over ranks, and scales the
activations of routed tokens. Times have the stack's own imbalance; a stated one makes the operators of
experts and their all-to-alls longer or shorter by the ratio of the two, where experts are spread over ranks
(ep above 1).
"""

from trainwright.cost.constants import Stack
from trainwright.errors import BadInput
from trainwright.model.graph import Graph

_REMEDY = "write a number like 1.3, or leave it out"


def parse_imbalance(text: str, thing: str) -> float:
    """The number that a text states as imbalance."""
    try:
        return float(text)
    except ValueError:
        raise BadInput(thing, text, "is not a number", _REMEDY) from None


def check_imbalance(factor: float, graph: Graph, thing: str) -> None:
    """Raise for a model without experts, or an imbalance that its experts cannot have."""
    experts = graph.sizes.get("experts", 0)
    if not experts:
        raise BadInput(thing, f"{factor:g}", f"{graph.name} has no experts", "leave it out")
    if not factor >= 1.0:  # which holds for nan too
        raise BadInput(thing, f"{factor:g}", "must be 1 (as many tokens on every rank) or more", _REMEDY)
    if factor > experts:
        rule = f"no rank has more than {experts} times the mean with the {experts} experts of {graph.name}"
        raise BadInput(thing, f"{factor:g}", rule, f"state {experts} or less")


def render_imbalance(stack: Stack) -> str:
    """What was stated, in words; nothing if nothing was."""
    if not stack.stated_imbalance:
        return ""
    slowdown = stack.expert_slowdown
    effect = f"{slowdown:.3g} times as long as with the stack's own, {stack.expert_imbalance:g}"
    return (
        f"Expert imbalance {stack.stated_imbalance:g} (routed tokens of the rank with most, of the mean): "
        f"where ep is above 1, experts and their all-to-alls take {effect}."
    )
