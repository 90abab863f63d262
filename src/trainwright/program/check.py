"""Whether a program computes what its model says: every value there, whole and once, where it is read."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainwright.model.flow import recycled
from trainwright.model.graph import Tensor, trained_weights
from trainwright.program.builder import Builder
from trainwright.program.check_moves import broken_move
from trainwright.program.check_state import check_gathered, check_state
from trainwright.program.faults import broken
from trainwright.program.forward import CARRIED
from trainwright.program.layout import Layout
from trainwright.program.losses import (
    STATISTICS,
    answer_weight,
    splits_vocabulary,
    statistics_layout,
)
from trainwright.program.lower import Program, Route
from trainwright.program.shards import base_name
from trainwright.program.step import GRADIENT, STATE_GRADIENT, Step, Value
from trainwright.program.tensors import Role

_GRADIENTS_OF_WEIGHTS = ("matmul", "grouped_matmul")
Makers = tuple[int, ...]  # numbers of steps whose results add up to a value


def check(program: Program) -> None:
    """Raise for the first step that breaks a rule; it is named with its device and the rule.

    Whether orders agree with each other is found when the program is simulated, as a deadlock.
    """
    for route, builder in zip(program.routes, program.builders, strict=True):
        flow = _Flow(program=program, route=route, builder=builder)
        for number, step in enumerate(route.steps):
            flow.run(number, step)
        flow.end()
        check_state(program, route, builder)


@dataclass(slots=True, kw_only=True)
class _Flow:
    """What is there after each step of a route: every value with the steps that made it."""

    program: Program
    route: Route
    builder: Builder
    held: dict[Value, Makers] = field(default_factory=dict)
    seen: set[Value] = field(default_factory=set)
    makers: dict[str, list[int]] = field(default_factory=dict)
    done: set[tuple[int, int, str, int]] = field(default_factory=set)  # operator, chunk, phase, pass
    read: dict[str, tuple[int, int]] = field(default_factory=dict)  # by a step: how many makers it had then
    gathered: dict[str, Step] = field(default_factory=dict)
    allowed: dict[tuple[int, str], Mapping[str, Sequence[tuple[Tensor, Role]]]] = field(default_factory=dict)

    def run(self, number: int, step: Step) -> None:
        """Check one step, and let it write."""
        for other in (*step.after, *step.after_weights, *step.beside, step.alongside):
            if other >= number:
                raise broken(step, "waits for a step that comes after it, which is a cycle")
        if step.state:
            self._run_state(step)
        elif step.kind == "compute":
            self._run_compute(number, step)
        elif step.move is not None:
            self._run_move(step)
        else:
            self._run_other(number, step)

    def _run_state(self, step: Step) -> None:
        for value in step.writes:
            self.gathered[value.name] = step

    def _run_move(self, step: Step) -> None:
        assert step.move is not None
        fault = broken_move(step, self.route.shapes)
        if fault:
            raise broken(step, *fault)
        if len(step.reads) != len(step.writes):
            raise broken(step, "does not write all that it reads")
        for read, written in zip(step.reads, step.writes, strict=True):
            if read.name != written.name:
                raise broken(step, f"moves {read.name} and calls it {written.name}")
            self._write(written, self._found(step, read))
        self.seen.update(step.reads)

    def _run_other(self, number: int, step: Step) -> None:
        """Joins of serial parts, and copies to and from the host."""
        for value in step.reads:
            self._whole(step, number, value)
        for value in step.writes:
            known = self.makers.setdefault(value.name, [])
            known += [] if number in known else [number]  # what the host gives back may come in two layouts
            self._write(value, (number,))

    def _run_compute(self, number: int, step: Step) -> None:
        self._check_cell(step)
        reads = list(self._reads(step))
        for value in reads:
            self._check_role(step, value)
            self._whole(step, number, value)
        self._check_complete(step, reads)
        check_gathered(self.route, step, self.gathered)
        self._check_writes(step)
        self.seen.update(reads)
        for value in step.writes:
            if not value.name.startswith(STATE_GRADIENT):
                self.makers.setdefault(value.name, []).append(number)
                self._write(value, (number,))

    def _reads(self, step: Step) -> Iterator[Value]:
        """Values that an operator reads, what streams in beside it included; not its weights."""
        names = set()
        for value in step.reads:
            if value.name not in self.gathered:
                names.add(value.name)
                yield value
        for number in reversed(step.beside):
            for value in self.route.steps[number].writes:
                if value.name not in names:
                    names.add(value.name)
                    yield value

    def _check_cell(self, step: Step) -> None:
        """One operator's part: of the right operator, on all of its devices, once, and to scale."""
        placed, instance = self.route.placed[step.instance], self.builder.instances[step.instance]
        if step.mesh.devices is not placed.mesh.devices and step.mesh.devices != placed.mesh.devices:
            missing = set(placed.mesh.devices) ^ set(step.mesh.devices) or {step.mesh.devices[0]}
            raise broken(step, "does not run alike on all of its devices", min(missing))
        if step.name != instance.name or not 0 <= step.chunk < placed.serial[1]:
            raise broken(step, f"is not part of operator {instance.name}")
        key = (step.instance, step.chunk, step.phase, step.passes)
        closes = splits_vocabulary(self.builder, step.instance) and any(
            STATISTICS in v.name for v in step.reads
        )
        if key in self.done and not closes:
            raise broken(step, "is done twice")
        self.done.add(key)
        loss = instance.op.kind == "loss" and step.phase == "I"
        if step.scale != (answer_weight(self.builder, step.instance) if loss else 1.0):
            raise broken(step, f"is scaled by {step.scale:g}, which no other step is")

    def _check_role(self, step: Step, value: Value) -> None:
        """A value that is read must be the operator's to read, in the layout of its part."""
        base = base_name(value.name)
        dims = self.builder.written_dims[value.name.removeprefix(GRADIENT)]
        if base.endswith(STATISTICS):
            wanted = [replace(statistics_layout(self.builder, step.instance), partial=())]
        else:
            roles = self._roles(step.instance, "gradients" if base.startswith(GRADIENT) else "values")
            wanted = [
                self.builder.layout(step.instance, tensor, role, dims) for tensor, role in roles.get(base, ())
            ]
        if not wanted:
            raise broken(step, f"reads {value.name}, which is not its to read")
        if value.layout not in wanted:
            if value.layout.partial:
                raise broken(
                    step, f"reads {value.name} {value.layout}: shares of a value that were not summed"
                )
            raise broken(step, f"reads {value.name} {value.layout}, but works on {wanted[0]}")

    def _roles(self, index: int, what: str) -> Mapping[str, Sequence[tuple[Tensor, Role]]]:
        """By name, as what an operator may read a value."""
        if (index, what) not in self.allowed:
            instance = self.builder.instances[index]
            op = instance.op
            found: dict[str, list[tuple[Tensor, Role]]] = {}
            made = list(zip(instance.outputs, (op.output, *op.extra_outputs), strict=True))
            if what == "gradients":
                for name, tensor in made:
                    found.setdefault(GRADIENT + name, []).append((tensor, "gradient of written"))
            else:
                given = recycled(self.builder.instances) if self.builder.setting.graph.passes > 1 else {}
                for name, tensor in zip(instance.inputs, op.inputs, strict=True):
                    found.setdefault(given.get(name, name), []).append((tensor, "read"))
                for name, tensor in made:
                    found.setdefault(name, []).append((tensor, "written"))
            self.allowed[(index, what)] = found
        return self.allowed[(index, what)]

    def _found(self, step: Step, value: Value) -> Makers:
        """The steps that made a value as it is read: so written, or lying the same in another layout."""
        found: list[int] = []
        at: Value | None = value
        while at is not None:
            if at in self.held:
                found += self.held[at]
                self.seen.add(at)
            at = self.route.aliases.get(at)
        if not found:
            raise broken(step, f"reads {value.name} {value.layout}, which no step has written")
        return tuple(found)

    def _whole(self, step: Step, number: int, value: Value) -> None:
        """A value must be there with every contribution, once."""
        found, wanted = sorted(self._found(step, value)), self.makers[value.name]
        if found != wanted:
            missing = [self.route.steps[each].name for each in wanted if each not in found]
            rule = f"without what {missing[0]} adds" if missing else "with something counted twice"
            raise broken(step, f"reads {value.name} {value.layout} {rule}")
        self.read[value.name] = (number, len(wanted))

    def _check_complete(self, step: Step, reads: Sequence[Value]) -> None:
        """An operator must read all of its inputs, and every gradient of its results."""
        instance = self.builder.instances[step.instance]
        names = {base_name(value.name) for value in reads}
        if step.phase in "FNR" and not any(name.endswith(STATISTICS) for name in names):
            for name, tensor in zip(instance.inputs, instance.op.inputs, strict=True):
                if name not in names and not name.startswith("input/") and tensor.name not in CARRIED:
                    raise broken(step, f"does not read {name}")
        elif step.phase in "IW":
            for name in instance.outputs:
                if GRADIENT + name in self.makers and GRADIENT + name not in names:
                    raise broken(step, f"does not read the gradient of {name}")

    def _check_writes(self, step: Step) -> None:
        """Results must be the operator's, in the layouts that its part of them has."""
        instance, index = self.builder.instances[step.instance], step.instance
        op = instance.op
        outputs: dict[str, tuple[Tensor, Role]] = {}
        if step.phase in "FNR":
            outputs = {
                n: (t, "written")
                for n, t in zip(instance.outputs, (op.output, *op.extra_outputs), strict=True)
            }
        elif step.phase == "I":
            outputs = {
                GRADIENT + n: (t, "gradient of read") for n, t in zip(instance.inputs, op.inputs, strict=True)
            }
        written = set()
        for value in step.writes:
            base = base_name(value.name)
            if base.startswith(STATE_GRADIENT):
                continue
            written.add(base)
            if base.endswith(STATISTICS):
                layout: Layout | None = statistics_layout(self.builder, index)
            else:
                dims = self.builder.written_dims[value.name.removeprefix(GRADIENT)]
                layout = self.builder.layout(index, *outputs[base], dims) if base in outputs else None
            if value.layout != layout:
                raise broken(step, f"writes {value.name} {value.layout}, but its part of it is {layout}")
        summed = splits_vocabulary(self.builder, index)
        freed = self.builder.placed[index].freed if step.phase == "R" else None
        wanted = {name for name, (tensor, _) in outputs.items() if not freed or tensor.name in freed}
        if step.phase in "FNR" and not summed and written != wanted:
            raise broken(step, f"does not write {min(wanted - written, default='what is made again')}")

    def _write(self, value: Value, makers: Makers) -> None:
        if value in self.seen:
            self.seen.discard(value)
            self.held[value] = makers
        else:
            self.held[value] = (*self.held.get(value, ()), *makers)

    def end(self) -> None:
        """After the last step: nothing came too late, and every operator was done, both ways."""
        for name, (number, count) in self.read.items():
            if len(self.makers[name]) > count:
                raise broken(self.route.steps[number], f"reads {name} before all of it is there")
        phases = {
            number: ("F", "I", "W")
            if each.op.kind in _GRADIENTS_OF_WEIGHTS and trained_weights(each.op)
            else ("F", "I")
            for number, each in enumerate(self.builder.instances)
        }
        for number, instance in enumerate(self.builder.instances):
            placed = self.route.placed[number]
            for chunk in range(placed.serial[1]):
                for phase in phases[number]:
                    if (number, chunk, phase, 0) not in self.done:
                        step = next(each for each in self.route.steps if each.kind == "compute")
                        lost = step.set(name=instance.name, phase=phase, mesh=placed.mesh)
                        raise broken(lost, "is not done")
