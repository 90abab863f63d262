"""Whether the orders of a plan name what its devices have to do: every action once, and nothing else."""

from collections import Counter
from collections.abc import Iterator

from trainwright.errors import BadInput
from trainwright.plan.action import Action
from trainwright.plan.plan import Order
from trainwright.program.lower import Program

Homes = dict[tuple[int, int], set[int]]  # by route and stage, the devices that have operators of it


def check_orders(program: Program) -> None:
    """Raise for an action that a device's order lacks, repeats, or cannot have."""
    homes: Homes = {}
    for number, route in enumerate(program.routes):
        meshes = {
            (stage, each.mesh.devices) for stage, each in zip(program.stages, route.placed, strict=True)
        }
        for stage, devices in meshes:
            homes.setdefault((number, stage), set()).update(devices)
    for order in program.plan.orders:
        _check_known(program, order)
        _check_complete(program, order, homes)


def _check_known(program: Program, order: Order) -> None:
    plan, passes = program.plan, program.setting.graph.passes
    stages = max(len(plan.stages), 1)
    for device in order.devices:
        if device >= plan.devices:
            raise BadInput("plan: order of device", device, f"the plan has {plan.devices}", "drop it")
    for action, count in Counter(order.actions).items():
        inside = action.stage < stages and action.microbatch < plan.microbatches
        if not inside or action.pass_ >= (passes - 1 if action.phase == "N" else 1):
            rule = f"is not among {stages} stages, {plan.microbatches} microbatches and {passes} passes"
            raise _wrong(order, action, rule, "drop it")
        if count > 1:
            raise _wrong(order, action, "is there twice", "drop one")


def _check_complete(program: Program, order: Order, homes: Homes) -> None:
    found, routes = set(order.actions), len(program.routes)
    for (route, stage), devices in homes.items():
        if devices.isdisjoint(order.devices):
            continue
        for microbatch in range(route, program.plan.microbatches, routes):
            for action in _wanted(program, found, stage, microbatch):
                if action not in found:
                    raise _wrong(order, action, "is missing", "add it")


def _wanted(program: Program, found: set[Action], stage: int, microbatch: int) -> Iterator[Action]:
    """What a microbatch asks of a stage: its backward as B, or as I and W."""
    whole = Action("B", stage, microbatch)
    parts = (Action("I", stage, microbatch), Action("W", stage, microbatch))
    yield Action("F", stage, microbatch)
    yield from (Action("N", stage, microbatch, each) for each in range(program.setting.graph.passes - 1))
    split = not found.isdisjoint(parts)
    if split and whole in found:
        raise BadInput("plan: action", str(whole), "its backward is also split", "keep B, or I and W")
    yield from parts if split else (whole,)


def _wrong(order: Order, action: Action, rule: str, remedy: str) -> BadInput:
    return BadInput(f"plan: order of device {order.devices[0]}: action", str(action), rule, remedy)
