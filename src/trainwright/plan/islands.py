"""Islands of a plan: groups of devices that train apart and meet every so many steps, or say less in each."""

from dataclasses import replace

from trainwright.algorithm.meeting import round_steps
from trainwright.algorithm.protocol import Algorithm
from trainwright.algorithm.registry import (
    ALGORITHMS,
    has_rounds,
    parse_algorithm,
    render_algorithm,
    short_name,
)
from trainwright.errors import BadInput
from trainwright.plan.plan import Apart, Plan, Synchronise

_NO_ISLANDS = {  # why the workers of an algorithm are none, and what to do
    "ddp": (
        "is exact training, which is planned beside all others",
        "name another, or leave out --algorithm",
    ),
    "marina": ("takes most gradients twice, which no plan says", "use diana: it sends as little"),
}
APART = tuple(name for name in ALGORITHMS if name not in _NO_ISLANDS)
_SLICED = {"heads": "@attention", "ffn": "@ffn"}  # dims that subnetworks divide, and the operators of each


def parse_island_algorithm(text: str) -> Algorithm:
    """The algorithm that a text states, if its workers can be islands."""
    algorithm, name = parse_algorithm(text), text.split()[0]
    if name in _NO_ISLANDS:
        raise BadInput("algorithm", text, *_NO_ISLANDS[name])
    return algorithm


def set_apart(plan: Plan, algorithm: Algorithm, islands: int) -> Plan:
    """The plan of one island done by several, that learn together in the way of an algorithm."""
    name, *words = render_algorithm(algorithm).split()
    every = round_steps(algorithm)
    by = " ".join([name, *(word for word in words if not word.startswith("every="))])
    apart = [Apart(ops="*", dim="batch", parts=islands)]
    if name == "ist":
        apart += [Apart(ops=ops, dim=dim, parts=islands) for dim, ops in _SLICED.items()]
    return replace(
        plan, name=f"{plan.name} | {islands} islands, {short_name(algorithm)} every={every}",
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
    every, by = plan.synchronise.every, plan.synchronise.by
    name, *words = by.split()
    if name not in ALGORITHMS or has_rounds(name):
        return parse_island_algorithm(" ".join([name, f"every={every}", *words]))
    if every != 1:
        rule = f"tells something in every step, and the plan says every {every}"
        raise BadInput("synchronise by", by, rule, "write synchronise every 1, or use diloco")
    return parse_island_algorithm(by)


def island_plan(plan: Plan) -> Plan:
    """What one island does in a step, as a plan of its own."""
    transforms = tuple(each for each in plan.transforms if not isinstance(each, Apart))
    return replace(plan, name=plan.name.partition(" | ")[0], transforms=transforms, synchronise=None)
