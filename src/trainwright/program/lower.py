"""Lowering: from a plan to the steps that carry it out on devices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from trainwright.cost.network import level_links
from trainwright.errors import BadInput
from trainwright.model.flow import Instance, recycled, wire
from trainwright.plan.islands import is_apart
from trainwright.plan.plan import Plan
from trainwright.plan.select import select
from trainwright.program.backward import Backward
from trainwright.program.builder import Builder
from trainwright.program.bundles import Bundle, borrowed, bundles
from trainwright.program.forward import Cell, Forward, cells
from trainwright.program.late import with_late_sums
from trainwright.program.mixed_results import check_mixed_results
from trainwright.program.network import Network
from trainwright.program.offload import Away, find_away
from trainwright.program.placed import Placed, place, routes
from trainwright.program.setting import Setting
from trainwright.program.state import finish_step, gather_weights, scatter_gradients
from trainwright.program.step import Step, Value
from trainwright.program.values import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The steps of one microbatch of a route, and of what is done once a step."""

    steps: tuple[Step, ...]
    placed: tuple[Placed, ...]
    shapes: Mapping[str, Shape]
    bundles: tuple[Bundle, ...]
    aliases: Mapping[Value, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What a plan means on devices."""

    setting: Setting
    plan: Plan
    instances: tuple[Instance, ...]
    stages: tuple[int, ...]  # of each operator
    routes: tuple[Route, ...]
    builders: tuple[Builder, ...]


def lower(setting: Setting, plan: Plan) -> Program:
    """The program of a plan for a model on a cluster; raises where the plan breaks a rule."""
    if plan.devices > setting.cluster.count:
        raise BadInput(
            "plan devices", plan.devices, f"the cluster has {setting.cluster.count}", "use a larger cluster"
        )
    if is_apart(plan):
        rule = "has islands, and what is lowered is the step of one"
        raise BadInput("plan", plan.name, rule, "use trainwright simulate, or a plan without apart")
    instances = wire(setting.graph)
    stages = _stages(plan, instances)
    links = level_links(setting.cluster, setting.efficiency, setting.stack)
    network = Network(links=links, mapping=plan.mapping)
    made = [_route(setting, plan, network, instances, stages, number) for number in range(routes(plan))]
    return Program(
        setting=setting, plan=plan, instances=tuple(instances), stages=tuple(stages),
        routes=tuple(route for route, _ in made), builders=tuple(builder for _, builder in made),
    )  # fmt: skip


def _stages(plan: Plan, instances: Sequence[Instance]) -> list[int]:
    if not plan.stages:
        return [0] * len(instances)
    found = [-1] * len(instances)
    for number, stage in enumerate(plan.stages):
        for index in select(instances, stage.ops):
            if found[index] >= 0:
                raise BadInput("plan: op", instances[index].name, "is in two stages", "name it in one")
            found[index] = number
    for index, number in enumerate(found):
        if number < 0:
            raise BadInput("plan: op", instances[index].name, "is in no stage", "add it to one")
    return found


def _route(
    setting: Setting,
    plan: Plan,
    network: Network,
    instances: Sequence[Instance],
    stages: Sequence[int],
    number: int,
) -> tuple[Route, Builder]:
    builder = Builder(
        setting=setting, plan=plan, network=network, instances=instances, placed=(), stages=stages
    )
    sizes = [builder.sizes(instance) for instance in instances]
    every = [
        with_late_sums(instances, place(plan, instances, sizes, each), sizes) for each in range(routes(plan))
    ]
    builder.placed = every.pop(number)
    builder.twins = every
    check_mixed_results(builder)
    owned = bundles(builder)
    order = cells(builder)
    crossing = _crossing(builder)
    ahead = [
        Forward(builder=builder, phase="N", suffix=f"^{number}", passes=number)
        for number in range(setting.graph.passes - 1)
    ]
    forward = Forward(builder=builder, crossing=crossing)
    away = find_away(builder)
    last: tuple[int, ...] = ()
    for before, each in zip([None, *ahead], [*ahead, forward], strict=True):
        _recycle(before, each)
        last = _forward(builder, each, order, owned, last, away if each is forward else Away(last={}))
    backward = Backward(builder=builder, kept=forward.kept, order=order, last=last[-1])
    _backward(builder, backward, order, owned, away)
    listed = tuple(bundle for each in owned.values() for bundle in each)
    finish_step(builder, listed)
    route = Route(
        steps=tuple(builder.steps), placed=tuple(builder.placed), shapes=builder.shapes, bundles=listed,
        aliases=builder.aliases,
    )  # fmt: skip
    return route, builder


def _recycle(before: Forward | None, forward: Forward) -> None:
    """Give a pass what the one before it has made for it."""
    if before is None:
        return
    forward.before = before.passes
    for wanted, name in recycled(forward.builder.instances).items():
        made = name + before.suffix
        forward.recycled[wanted] = made
        forward.store.versions[made] = before.store.versions[made]


def _crossing(builder: Builder) -> frozenset[str]:
    """Results that another block reads, or that serial parts have made for operators after them."""
    made = {name: index for index, each in enumerate(builder.instances) for name in each.outputs}
    found: set[str] = set()
    for index, instance in enumerate(builder.instances):
        for name in instance.inputs:
            if name in made and (
                builder.instances[made[name]].block != instance.block
                or _is_summed_of_parts(builder, made[name], index)
            ):
                found.add(name)
    return frozenset(found)


def _is_summed_of_parts(builder: Builder, writer: int, reader: int) -> bool:
    """Whether an operator reads what serial parts have made together: doing one again is not enough."""
    parts = builder.placed[writer].serial
    return parts[1] > 1 and parts != builder.placed[reader].serial


def _forward(
    builder: Builder,
    forward: Forward,
    order: Sequence[Cell],
    owned: Mapping[str, list[Bundle]],
    after: tuple[int, ...],
    away: Away,
) -> tuple[int, ...]:
    """All operators of a pass; the last step, which a next pass starts from."""
    ahead = Ahead.of(builder, order, owned, forward.phase, forward.passes)
    step = -1
    for cell in order:
        instance = builder.instances[cell[0]]
        first = after if not instance.inputs or _reads_input(instance) else ()
        if ahead.enters(instance.block):
            first += away.send(builder, forward.kept, ahead.block, builder.stages[cell[0]])
            forward.weights = ahead.enter(instance.block, step)
        step = forward.run(cell, first)
    away.send(builder, forward.kept, ahead.block, -1)
    return (step,)


def _reads_input(instance: Instance) -> bool:
    return any(name.startswith("input/") for name in instance.inputs)


def _backward(
    builder: Builder, backward: Backward, order: Sequence[Cell], owned: Mapping[str, list[Bundle]], away: Away
) -> None:
    """All operators back. Gradients of one block at most wait while the next one's are made."""
    ahead = Ahead.of(builder, order[::-1], owned, "I", 0)
    scattered: dict[int, list[tuple[int, ...]]] = {}  # by stage, for each of its blocks
    stage = -1
    for cell in reversed(order):
        block = builder.instances[cell[0]].block
        after: tuple[int, ...] = ()
        if ahead.enters(block):
            scattered.setdefault(stage, []).append(scatter_gradients(builder, owned.get(ahead.block, ())))
            stage = builder.stages[cell[0]]
            after = scattered[stage][-2] if len(scattered.get(stage, ())) > 1 else ()
            away.bring(builder, backward.stores, block, -1)
            away.bring(builder, backward.stores, ahead.following.get(block, block), backward.last)
            backward.weights = ahead.enter(block, backward.last)
        backward.run(cell, after)
    scatter_gradients(builder, owned.get(ahead.block, ()))


@dataclass(slots=True, kw_only=True)
class Ahead:
    """Weights that are gathered block by block, each while the block before it is at work."""

    builder: Builder
    owned: Mapping[str, list[Bundle]]
    phase: str
    passes: int
    following: Mapping[str, str]  # the next block of the same stage
    block: str = ""
    gathered: dict[str, tuple[Value, ...]] = field(default_factory=dict)

    @staticmethod
    def of(
        builder: Builder, order: Sequence[Cell], owned: Mapping[str, list[Bundle]], phase: str, passes: int
    ) -> "Ahead":
        """For a pass through operators in some order."""
        homes = {builder.instances[index].block: builder.stages[index] for index, _ in order}
        names = list(homes)
        following = {a: b for a, b in pairwise(names) if homes[a] == homes[b]}
        used = {block: [*owned.get(block, ()), *more] for block, more in borrowed(builder, owned).items()}
        return Ahead(
            builder=builder, owned={**owned, **used}, phase=phase, passes=passes, following=following
        )

    def enters(self, block: str) -> bool:
        """Whether a block is not the one at work."""
        return block != self.block

    def enter(self, block: str, last: int) -> tuple[Value, ...]:
        """Begin a block after step `last`: its weights, while those of the next are on their way."""
        self.block = block
        for each, after in ((block, ()), (self.following.get(block, block), (last,) if last >= 0 else ())):
            if each not in self.gathered:
                self.gathered[each] = gather_weights(
                    self.builder, self.owned.get(each, ()), self.phase, after, self.passes
                )
        return self.gathered[block]
