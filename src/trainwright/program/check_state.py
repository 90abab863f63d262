"""Whether copies of weights stay equal: gradients summed over all copies, once, after the last microbatch."""

from collections.abc import Mapping, Sequence

import numpy as np

from trainwright.model.graph import served_results
from trainwright.program.builder import Builder
from trainwright.program.check_moves import signature
from trainwright.program.faults import broken
from trainwright.program.layout import Layout
from trainwright.program.lower import Program, Route
from trainwright.program.step import STATE_GRADIENT, Step, Weight

Group = frozenset[int]


def check_gathered(route: Route, step: Step, gathered: Mapping[str, Step]) -> None:
    """A step that uses sharded weights must read what was gathered of them."""
    if step.phase == "W":
        return
    sharded = _sharded_weights(route).get(step.instance, ())
    there = {
        weight for value in step.reads if value.name in gathered for weight in gathered[value.name].state
    }
    for weight in sharded:
        if weight not in there:
            raise broken(step, f"uses weight {weight[1]}, of which its devices hold only shards")


_known: dict[int, tuple[Route, dict[int, tuple[Weight, ...]]]] = {}


def _sharded_weights(route: Route) -> dict[int, tuple[Weight, ...]]:
    known = _known.get(id(route))
    if known is None or known[0] is not route:
        found: dict[int, tuple[Weight, ...]] = {}
        for bundle in route.bundles:
            if len(bundle.sharded("weights")) > 1:
                for weight in bundle.weights:
                    found[weight[0]] = (*found.get(weight[0], ()), weight)
        _known.clear()
        _known[id(route)] = known = (route, found)
    return known[1]


def check_state(program: Program, route: Route, builder: Builder) -> None:
    """Raise for a weight whose gradients or new values are not brought together as its copies need."""
    by_weight: dict[Weight, list[Step]] = {}
    for step in route.steps:
        if step.state:
            _check_step(step, builder)
            for weight in step.state:
                by_weight.setdefault(weight, []).append(step)
    done: dict[tuple[object, ...], None] = {}
    groups: dict[tuple[int, int, str], tuple[Group, ...]] = {}
    for bundle in route.bundles:
        for weight in bundle.weights if bundle.trained else ():
            steps = [step for step in by_weight.get(weight, ()) if step.phase in "WSP"]
            alike = (id(builder.instances[weight[0]].op), id(builder.placed[weight[0]]), weight[1])
            if alike not in groups:
                groups[alike] = _wanted_groups(builder, weight)
            wanted = groups[alike]
            key = (wanted, *((s.phase, s.kind, s.groups, s.span) for s in steps), "weights" in bundle.shards)
            if key not in done:
                _check_weight(builder, weight, steps, wanted, sharded="weights" in bundle.shards)
                done[key] = None


def _check_step(step: Step, builder: Builder) -> None:
    if step.scale != 1.0:
        raise broken(step, f"scales by {step.scale:g} what other copies do not")
    if step.phase == "W" and step.kind != "reduce_scatter":
        raise broken(step, "reduces gradients before the last microbatch")
    if step.phase in "SW":
        waited = {value.name for value in step.reads}
        for index, name in step.state:
            if STATE_GRADIENT + builder.instances[index].name not in waited:
                raise broken(step, f"does not wait for the gradient of {name}")


def _wanted_groups(builder: Builder, weight: Weight) -> tuple[Group, ...]:
    """The devices whose gradients add up: those with one part of a weight, and other parts of its result.

    Devices with the same parts of both have done the same work, and have the same gradient already, unless
    they started from shares of it.
    """
    index, name = weight
    op = builder.instances[index].op
    tensor = next(each for each in op.weights if each.name == name)
    mesh = builder.placed[index].mesh
    own = _ranks(builder.layout(index, tensor, "read"))
    served = served_results(op, name)
    work = list(zip(*(_ranks(builder.layout(index, each, "written")) for each in served), strict=True))
    late = builder.placed[index].late
    found: dict[object, dict[object, list[int]]] = {}
    for rank, device in enumerate(mesh.devices):
        shares = tuple(mesh.coordinates(rank)[axis] for axis in late)
        found.setdefault(own[rank], {}).setdefault((*work[rank], shares), []).append(device)
    groups: list[Group] = []
    for parts in found.values():
        groups += [frozenset(together) for together in zip(*parts.values(), strict=False)]
    return tuple(groups)


def _ranks(layout: Layout) -> list[tuple[int, ...]]:
    """Of each rank, its parts of all split dims."""
    columns = [np.frombuffer(index, dtype=np.int64) for dim, index, _ in signature(layout, ()) if dim]
    count = len(layout.mesh.devices)
    return list(zip(*columns, strict=True)) if columns else [()] * count


def _check_weight(
    builder: Builder, weight: Weight, steps: Sequence[Step], wanted: Sequence[Group], *, sharded: bool
) -> None:
    """Follow which devices' gradients each device has, reduction by reduction."""
    _, name = weight
    has = {device: {device: 1} for group in wanted for device in group}
    shares = dict.fromkeys(has, 1)
    for (phase, kind, groups), spans in _by_collective(steps).items():
        step = next(each for each in steps if (each.phase, each.kind, each.groups) == (phase, kind, groups))
        if not _covers(spans):
            raise broken(step, f"moves a part of {name} twice, or not at all")
        for group in groups:
            members = [device for device in group if device in has]
            if phase == "P":
                shares |= dict.fromkeys(members, 1)
                continue
            total: dict[int, int] = {}
            for device in members:
                for other, count in has[device].items():
                    total[other] = total.get(other, 0) + count
            has |= dict.fromkeys(members, total)
            if kind == "reduce_scatter":
                shares |= {device: shares[device] * len(group) for device in members}
    lost = _step_of(builder, weight, steps)
    for whole in wanted:
        for device in whole:
            if has[device] != dict.fromkeys(whole, 1):
                summed = sorted(has[device].items())
                rule = f"gradient of {name} is the sum over {summed}, not over {sorted(whole)} once"
                raise broken(lost, rule, device)
            if shares[device] > 1 and not sharded:
                raise broken(lost, f"new values of {name} are not gathered", device)


def _by_collective(
    steps: Sequence[Step],
) -> dict[tuple[str, str, tuple[tuple[int, ...], ...]], list[tuple[float, float]]]:
    found: dict[tuple[str, str, tuple[tuple[int, ...], ...]], list[tuple[float, float]]] = {}
    for phase in "WSP":
        for step in steps:
            if step.phase == phase:
                found.setdefault((step.phase, step.kind, step.groups), []).append(step.span)
    return found


def _covers(spans: Sequence[tuple[float, float]]) -> bool:
    """Whether parts follow on one another from nothing to all."""
    at = 0.0
    for low, high in sorted(spans):
        if low != at:
            return False
        at = high
    return at == 1.0


def _step_of(builder: Builder, weight: Weight, steps: Sequence[Step]) -> Step:
    if steps:
        return steps[-1]
    instance = builder.instances[weight[0]]
    return Step(
        name=instance.name, phase="S", kind="all_reduce", cause="dp", mesh=builder.placed[weight[0]].mesh,
        stage=builder.stages[weight[0]], block=instance.block,
    )  # fmt: skip
