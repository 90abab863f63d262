"""Lowering of activations that live on the host between forward and backward."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainwright.program.builder import Builder
from trainwright.program.sides import side_bytes
from trainwright.program.step import Step, Value
from trainwright.program.values import Store, held_bytes

BROUGHT = "@"  # after the name of a value that was on the host


@dataclass(slots=True, kw_only=True)
class Away:
    """What was copied to the host: by the block that needs it first in the backward, and by which step."""

    values: Mapping[str, list[Value]]
    copies: dict[str, int] = field(default_factory=dict)

    def bring(self, builder: Builder, stores: Sequence[Store], block: str, after: int) -> None:
        """Copy back what a block needs, once step `after` has ended, under names of its own."""
        if block not in self.copies:
            return
        copy = builder.steps[self.copies.pop(block)]
        brought = [Value(value.name + BROUGHT, value.layout) for value in copy.reads]
        for old, new in zip(copy.reads, brought, strict=True):
            builder.shapes[new.name] = builder.shapes[old.name]
            builder.written_dims[new.name] = builder.written_dims[old.name]
        number = builder.add(
            copy.set(phase="I", reads=(), writes=tuple(brought), after=(after,) if after >= 0 else ())
        )
        builder.steps[number].name = f"{block} from host"
        for store in stores:
            for value in brought:
                store.add(value.name, value.layout, number)


def send_away(builder: Builder, kept: Store) -> Away:
    """Copy what the plan offloads to the host, block by block, while the forward goes on."""
    away = Away(values=_needed(builder, kept))
    for block, values in away.values.items():
        away.copies[block] = builder.add(_copy(builder, block, values))
    return away


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
        name=f"{block} to host", phase="F", kind="copy", cause="offload", mesh=values[0].layout.mesh, stage=stage,
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


def _needed(builder: Builder, kept: Store) -> dict[str, list[Value]]:
    """What backwards read of what is kept, by the last block that does: it comes first on the way back."""
    last: dict[Value, str] = {}
    for index, instance in enumerate(builder.instances):
        placed = builder.placed[index]
        if "activations" not in placed.offloads:
            continue
        op = instance.op
        named = [*zip(op.inputs, instance.inputs, strict=True)]
        named += zip((op.output, *op.extra_outputs), instance.outputs, strict=True)
        saved = {tensor.name for tensor in op.saved}
        for tensor, name in named:
            wanted = tensor.name in saved or (placed.recompute and name in instance.inputs)
            for own in _versions(kept, name) if wanted else ():
                for layout in kept.layouts(own):
                    if layout.mesh.devices == placed.mesh.devices:
                        last[Value(own, layout)] = instance.block
    found: dict[str, list[Value]] = {}
    for value, block in last.items():
        found.setdefault(block, []).append(value)
    return found


def _versions(kept: Store, name: str) -> list[str]:
    """A value, or its serial parts."""
    if name in kept:
        return [name]
    parts: list[str] = []
    while f"{name}#{len(parts)}" in kept:
        parts.append(f"{name}#{len(parts)}")
    return parts
