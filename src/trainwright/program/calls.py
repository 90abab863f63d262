"""What an operator works on at a device, gathered from what that device holds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainwright.model.graph import Tensor
from trainwright.plan.rules import split_dim
from trainwright.program.builder import Builder
from trainwright.program.call import Call, results
from trainwright.program.holdings import Holdings
from trainwright.program.labelled import Part, Places, cut, renamed, whole
from trainwright.program.layout import Layout, region
from trainwright.program.losses import STATISTICS
from trainwright.program.reference import Data
from trainwright.program.shards import Shards, base_name
from trainwright.program.step import GRADIENT, Step, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Builds the calls of one microbatch."""

    data: Data
    number: int  # of the microbatch
    builder: Builder
    held: Holdings
    shards: Shards

    def call(self, step: Step, device: int) -> Call:
        """The work of a step at a device: its inputs, its weights, and what of the result is its to count."""
        instance = self.data.instances[step.instance]
        op, reads = instance.op, list(self.reads(step))
        parts = [self._input(step, device, reads, index) for index in range(len(op.inputs))]
        places = self._serial_places(step, parts)
        inputs = [
            self._cut(part, tensor, step, places) if part is not None and not serial else part
            for (part, serial), tensor in zip(parts, op.inputs, strict=True)
        ]
        targets = self.data.targets[self.number].get(instance.name)
        statistics = [value for value in reads if base_name(value.name).endswith(STATISTICS)]
        return Call(
            op=op, sizes=self.data.sizes[step.instance], inputs=inputs,
            weights=dict(self._weights(step, device, places)),
            adds={weight.name: self._adds(step, device, weight) for weight in op.weights},
            counted=[self._counted(step, device, tensor) for tensor in results(op)],
            targets=None if targets is None else whole(targets, op.output.dims),
            statistics=self.shards.read(statistics[0], device) if statistics else None,
        )  # fmt: skip

    def reads(self, step: Step) -> Iterator[Value]:
        """What a step reads, what streams in beside it included."""
        yield from step.reads
        names = {value.name for value in step.reads}
        for number in reversed(step.beside):  # the last layout on the way is the one that is read
            for value in self.shards.route.steps[number].writes:
                if value.name not in names:
                    names.add(value.name)
                    yield value

    def gradients(self, step: Step, device: int) -> list[Part | None]:
        """The gradients of an operator's results, all contributions added; None where there are none."""
        instance = self.data.instances[step.instance]
        found: list[Part | None] = []
        for name, tensor in zip(instance.outputs, results(instance.op), strict=True):
            parts = [
                self._of_serial_part(self.shards.read(value, device), value, tensor, step)
                for value in step.reads
                if base_name(value.name) == GRADIENT + name
            ]
            for part in parts[1:]:
                parts[0] = replace(parts[0], values=parts[0].values + cut(part, parts[0].at).values)
            found.append(parts[0] if parts else None)
        return found

    def repeats(self, step: Step, weight: Tensor) -> bool:
        """Whether an earlier serial part has dealt with a weight that all parts share, where they sum."""
        op, (dim, _) = self.data.instances[step.instance].op, self._serial(step)
        summed = split_dim(op, op.output, dim) is None and split_dim(op, weight, dim) is None
        return step.chunk > 0 and summed

    def _serial(self, step: Step) -> tuple[str, int]:
        return self.shards.route.placed[step.instance].serial

    def _input(self, step: Step, device: int, reads: list[Value], index: int) -> tuple[Part | None, bool]:
        """An input if it is read, and whether it is a serial part already."""
        instance = self.data.instances[step.instance]
        tensor, name = instance.op.inputs[index], instance.inputs[index]
        given = self.data.given[self.number].get(name)
        if given is not None:
            layout = self.builder.layout(step.instance, tensor, "read")
            sizes = {dim: self.data.sizes[step.instance][dim] for dim in tensor.dims}
            held = region(layout, sizes, layout.mesh.devices.index(device))
            return cut(
                whole(given, tensor.dims), {dim: np.arange(*ends) for dim, ends in held.items()}
            ), False
        for value in reads:
            if base_name(value.name) == name:
                reads.remove(value)
                return renamed(self.shards.read(value, device), tensor.dims), "#" in value.name
        return None, False

    def _serial_places(self, step: Step, parts: Sequence[tuple[Part | None, bool]]) -> dict[str, Places]:
        """The places of the serial part at work, as those inputs have them that are such parts."""
        op, (dim, _) = self.data.instances[step.instance].op, self._serial(step)
        found: dict[str, Places] = {}
        for (part, serial), tensor in zip(parts, op.inputs, strict=True):
            own = split_dim(op, tensor, dim)
            if part is not None and serial and own is not None:
                found[own] = part.at[own]
        return found

    def _cut(self, part: Part, tensor: Tensor, step: Step, places: Mapping[str, Places]) -> Part:
        """The serial part at work of something that is there as a whole."""
        (dim, chunks), op = self._serial(step), self.data.instances[step.instance].op
        own = split_dim(op, tensor, dim) if chunks > 1 else None
        if own is None:
            return part
        return cut(part, {own: places.get(own, np.array_split(part.at[own], chunks)[step.chunk])})

    def _of_serial_part(self, part: Part, value: Value, tensor: Tensor, step: Step) -> Part:
        """The gradient of the serial part at work; `value` may be that of the whole."""
        return part if "#" in value.name else self._cut(part, tensor, step, {})

    def _weights(self, step: Step, device: int, places: Mapping[str, Places]) -> Iterator[tuple[str, Part]]:
        names = [value.name for value in step.reads]
        for tensor in self.data.instances[step.instance].op.weights if step.phase != "W" else ():
            part = self.held.part((step.instance, tensor.name), device, names)
            yield tensor.name, self._cut(part, tensor, step, places)

    def _adds(self, step: Step, device: int, weight: Tensor) -> bool:
        """Whether this device and this serial part add a weight, where results are sums."""
        written = self.builder.layout(step.instance, self.data.instances[step.instance].op.output, "written")
        read = self.builder.layout(step.instance, weight, "read")
        return _is_first(written, device, _split_axes(read)) and not self.repeats(step, weight)

    def _counted(self, step: Step, device: int, result: Tensor) -> bool:
        """Whether the gradient of a result flows on at this device: once among those that share it."""
        op = self.data.instances[step.instance].op
        if op.kind != "matmul":
            return True
        summed = self.builder.layout(step.instance, op.inputs[0], "gradient of read")
        late = self.builder.placed[step.instance].late
        apart = {*late, *_split_axes(self.builder.layout(step.instance, result, "written"))}
        return _is_first(summed, device, apart)


def _split_axes(layout: Layout) -> set[int]:
    return {axis for _, axes in layout.splits for axis in axes}


def _is_first(layout: Layout, device: int, besides: set[int]) -> bool:
    """Whether a device is the first along the axes over which a value is shared out, besides some."""
    at = layout.mesh.coordinates(layout.mesh.devices.index(device))
    return not any(at[axis] for axis in layout.partial if axis not in besides)
