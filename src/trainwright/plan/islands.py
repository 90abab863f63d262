"""Islands of a plan: groups of devices that train apart and meet every so many steps."""

from dataclasses import replace

from trainwright.algorithm.protocol import Algorithm
from trainwright.algorithm.registry import parse_algorithm, render_algorithm
from trainwright.errors import BadInput
from trainwright.plan.plan import Apart, Plan, Synchronise

APART = ("local-sgd", "diloco", "streaming-diloco", "ist")  # algorithms whose workers can be islands
_SLICED = {"heads": "@attention", "ffn": "@ffn"}  # dims that subnetworks divide, and the operators of each


def parse_island_algorithm(text: str) -> Algorithm:
    """The algorithm that a text states, if its workers meet once in so many steps."""
    algorithm, name = parse_algorithm(text), text.split()[0]
    if name not in APART:
        rule = "tells something in every step, so its workers are no islands"
        raise BadInput("algorithm", text, rule, f"use one of {', '.join(APART)}")
    return algorithm


def set_apart(plan: Plan, algorithm: Algorithm, islands: int) -> Plan:
    """The plan of one island done by several, that learn together in the way of an algorithm."""
    name, *words = render_algorithm(algorithm).split()
    every = next(int(word.removeprefix("every=")) for word in words if word.startswith("every="))
    by = " ".join([name, *(word for word in words if not word.startswith("every="))])
    apart = [Apart(ops="*", dim="batch", parts=islands)]
    if name == "ist":
        apart += [Apart(ops=ops, dim=dim, parts=islands) for dim, ops in _SLICED.items()]
    return replace(
        plan, name=f"{plan.name} | {islands} islands, {name} every={every}",
        transforms=(*apart, *plan.transforms), synchronise=Synchronise(every=every, by=by),
    )  # fmt: skip


def is_apart(plan: Plan) -> bool:
    """Whether a plan has islands."""
    return plan.synchronise is not None or any(isinstance(each, Apart) for each in plan.transforms)


def islands_of(plan: Plan) -> int:
    """How many islands a plan has; raises where its statements about them contradict each other."""
    apart = [each for each in plan.transforms if isinstance(each, Apart)]
    samples = [each for each in apart if each.dim == "batch"]
    if len(samples) != 1 or samples[0].ops != "*" or plan.synchronise is None:
        rule = "does not say once over how many islands all samples go, and how they meet"
        raise BadInput("plan", plan.name, rule, "write apart * batch 2 and synchronise every 50 by diloco")
    islands = samples[0].parts
    if islands < 2 or any(each.parts != islands for each in apart):
        parts = ", ".join(str(each.parts) for each in apart)
        raise BadInput("plan: apart", parts, "is not one count of 2 or more", "state the same for all")
    sliced = {each.dim: each.ops for each in apart if each.dim != "batch"}
    wanted = _SLICED if plan.synchronise.by.split()[0] == "ist" else {}
    if sliced != wanted:
        rule = (
            f"sets apart {', '.join(sliced) or 'no units'}, and its algorithm {', '.join(wanted) or 'none'}"
        )
        remedy = "write apart @attention heads N and apart @ffn ffn N with ist, and only there"
        raise BadInput("plan", plan.name, rule, remedy)
    return islands


def algorithm_of(plan: Plan) -> Algorithm:
    """How the islands of a plan learn together."""
    assert plan.synchronise is not None
    name, *words = plan.synchronise.by.split()
    return parse_island_algorithm(" ".join([name, f"every={plan.synchronise.every}", *words]))


def island_plan(plan: Plan) -> Plan:
    """What one island does in a step, as a plan of its own."""
    transforms = tuple(each for each in plan.transforms if not isinstance(each, Apart))
    return replace(plan, name=plan.name.partition(" | ")[0], transforms=transforms, synchronise=None)
