"""Lowering of activations that live on the host between forward and backward."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from trainwright.plan.plan import Plan
from trainwright.program.builder import Builder
from trainwright.program.sides import side_bytes
from trainwright.program.step import Step, Value
from trainwright.program.values import Store, held_bytes

BROUGHT = "@"  # after the name of a value that was on the host

Held = tuple[str, tuple[int, ...]]  # a value, and the devices that hold it


@dataclass(slots=True, kw_only=True)
class Away:
    """What goes to the host: by the block that needs it first in the backward, the step that copies it."""

    last: Mapping[Held, str]  # the last block that reads a value on some devices: first on the way back
    copies: dict[str, int] = field(default_factory=dict)
    sent: dict[int, list[int]] = field(default_factory=dict)  # by stage

    def send(self, builder: Builder, kept: Store, block: str, stage: int) -> tuple[int, ...]:
        """Copy what a block has read for the last time; what the next one must wait for on the same stage.

        So two blocks are on their way at most while another works.
        """
        values = [
            Value(own, layout)
            for (name, devices), reader in self.last.items()
            if reader == block
            for own in _versions(kept, name)
            for layout in kept.layouts(own)
            if layout.mesh.devices == devices and not layout.partial
        ]
        if not values:
            return ()
        copy = _copy(builder, block, values)
        self.copies[block] = builder.add(copy)
        sent = self.sent.setdefault(copy.stage, [])
        sent.append(self.copies[block])
        return (sent[-2],) if len(sent) > 1 and copy.stage == stage else ()

    def bring(self, builder: Builder, stores: Sequence[Store], block: str, after: int) -> None:
        """Copy back what a block needs, once step `after` has ended, under names of its own."""
        if block not in self.copies:
            return
        sent = self.copies.pop(block)
        copy = builder.steps[sent]
        brought = [Value(value.name + BROUGHT, value.layout) for value in copy.reads]
        for old, new in zip(copy.reads, brought, strict=True):
            builder.shapes[new.name] = builder.shapes[old.name]
            builder.written_dims[new.name] = builder.written_dims[old.name]
        before = (sent, after) if after >= 0 else (sent,)
        number = builder.add(copy.set(phase="I", reads=(), writes=tuple(brought), after=before, lane="back"))
        builder.steps[number].name = f"{block} from host"
        for store in stores:
            for value in brought:
                store.add(value.name, value.layout, number)


def _copy(builder: Builder, block: str, values: Sequence[Value]) -> Step:
    setting = builder.setting
    kept: dict[str, float] = {}  # a value that is there in two layouts is kept in one
    for value in values:
        kept[value.name] = max(_kept_bytes(builder, value), kept.get(value.name, 0.0))
    size = sum(kept.values()) + _side_bytes(builder, block)
    size *= setting.stack.activations
    rate = setting.cluster.network.host_bytes_per_s * setting.efficiency.host_link
    stage = next(builder.stages[n] for n, each in enumerate(builder.instances) if each.block == block)
    return Step(
        name=f"{block} to host", phase="F", kind="copy", cause="offload", stage=stage,
        mesh=values[0].layout.mesh,
        block=block, reads=tuple(values), seconds=size / rate, whole_s=size / rate, bytes=size,
        blocking=float(not builder.plan.overlap), slows=setting.stack.interference, lane="copy",
    )  # fmt: skip


def _kept_bytes(builder: Builder, value: Value) -> float:
    """Bytes of a value as the stack keeps it: of what is gathered, some keep only their own part."""
    whole = held_bytes(builder.shapes[value.name], value.layout)
    part = min(held_bytes(builder.shapes[value.name], builder.homes.get(value.name, value.layout)), whole)
    share = builder.setting.stack.gathered_inputs
    return share * whole + (1.0 - share) * part


def _side_bytes(builder: Builder, block: str) -> float:
    """Bytes of what the operators of a block keep beside values."""
    return sum(
        side_bytes(builder, index) * builder.placed[index].serial[1]
        for index, instance in enumerate(builder.instances)
        if instance.block == block and not builder.placed[index].recompute
    )


def find_away(builder: Builder) -> Away:
    """What backwards read of what the plan offloads: saved tensors, and what recomputation starts from.

    The last block stays if its backward follows at once: it would be back before it had gone. If layers that
    are not offloaded come after it, there is time.
    """
    last: dict[Held, str] = {}
    stays = ""
    for index, instance in enumerate(builder.instances):
        placed, op = builder.placed[index], instance.op
        if "activations" not in placed.offloads:
            stays = "" if instance.layer is not None and instance.block != stays else stays
            continue
        named = [*zip(op.inputs, instance.inputs, strict=True)]
        named += zip((op.output, *op.extra_outputs), instance.outputs, strict=True)
        saved = {tensor.name for tensor in op.saved}
        for tensor, name in named:
            if tensor.name in saved or (placed.recompute and name in instance.inputs):
                last[(name, placed.mesh.devices)] = instance.block
                stays = instance.block
    if turns_at_once(builder.plan, max(builder.stages)):
        last = {held: block for held, block in last.items() if block != stays}
    return Away(last=last)


def turns_at_once(plan: Plan, stage: int) -> bool:
    """Whether the backward of a stage directly follows its forward."""
    for order in plan.orders:
        for action, following in pairwise(order.actions):
            if action.phase == "F" and action.stage == stage:
                return following == (following.phase, stage, action.microbatch, 0) and following.phase != "F"
    return not plan.orders


def _versions(kept: Store, name: str) -> list[str]:
    """A value, or its serial parts."""
    if name in kept:
        return [name]
    parts: list[str] = []
    while f"{name}#{len(parts)}" in kept:
        parts.append(f"{name}#{len(parts)}")
    return parts
