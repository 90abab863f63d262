"""Lowering of the backward pass: gradients of inputs and of weights, what is computed again for them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from trainwright.program.builder import Builder, chunk_name
from trainwright.program.forward import CARRIED, Cell, Forward, is_no_larger
from trainwright.program.layout import Layout
from trainwright.program.losses import answer_weight, splits_vocabulary, statistics_layout, statistics_of
from trainwright.program.offload import BROUGHT
from trainwright.program.step import STATE_GRADIENT, Step, Value, gradient
from trainwright.program.values import Store


@dataclass(slots=True, kw_only=True)
class Backward:
    """The pass back through operators."""

    builder: Builder
    kept: Store
    order: Sequence[Cell]  # of the forward pass
    gradients: Store = field(default_factory=Store)
    again: Forward | None = None  # operators that are done again
    remade: set[Cell] = field(default_factory=set)
    weights_done: list[int] = field(default_factory=list)  # weight gradients of the block before
    weights_now: list[int] = field(default_factory=list)
    block: str = ""
    stage: int = -1
    last: int = -1  # the last step that gave gradients of inputs
    weights: tuple[Value, ...] = ()  # of the block at work, where they are gathered for it

    @property
    def stores(self) -> list[Store]:
        """Where what it reads is looked for."""
        return [self.kept, *([self.again.store] if self.again is not None else [])]

    def run(self, cell: Cell, after: Sequence[int] = ()) -> None:
        """Add the backward of one operator's part: the gradients of its inputs, then of its weights."""
        b, (index, chunk) = self.builder, cell
        instance = b.instances[index]
        part = instance.block if b.placed[index].serial[1] == 1 else f"{instance.block}#{chunk}"
        if part != self.block:
            same = self.stage == b.stages[index]
            self.block, self.stage = part, b.stages[index]
            self.weights_done, self.weights_now = self.weights_now if same else [], []
        incoming = self._incoming(cell)
        first = len(b.steps)
        saved = self._saved(cell) + self._statistics(cell)
        for number in range(first, len(b.steps)):
            if b.steps[number].phase == "R":
                b.steps[number] = b.steps[number].set(after_weights=tuple(self.weights_done))
        beside = self._streamed(first, index)
        time = b.time(index)
        uneven = b.device_times(index)
        writes = tuple(self._outgoing(cell))
        weights = instance.op.kind in ("matmul", "grouped_matmul")
        common = {
            "name": instance.name, "kind": "compute", "mesh": b.placed[index].mesh, "stage": b.stages[index],
            "block": instance.block, "instance": index, "chunk": chunk,

        }  # fmt: skip
        needed = tuple(value for value in saved if value not in beside)
        own = (Value(STATE_GRADIENT + instance.name, b.layout(index, instance.op.output, "written")),)
        step = b.add(
            Step(
                # A product's gradient of its input does not need that input: only that of its weights does.
                **common, reads=(*incoming, *(() if weights else needed), *(self.weights if instance.op.weights else ())),
                phase="I", cause=_cause(instance.op.kind), writes=writes if weights else (*writes, *own),
                scale=answer_weight(b) if instance.op.kind == "loss" else 1.0,
                seconds=float(time.data_s[0]), kernels=time.kernels, after=tuple(after),
                uneven_s={d: float(t.data_s[0]) for d, t in uneven.items()},
                after_weights=tuple(self.weights_done), beside=tuple(dict.fromkeys(beside.values())),
            )
        )  # fmt: skip
        self.last = step
        for value in writes:
            self.gradients.add(value.name, value.layout, step)
        if instance.op.kind == "attention":
            self._send_home(writes, index, step)
        if weights:
            self.weights_now.append(
                b.add(
                    Step(
                        **common, reads=(*incoming, *needed), phase="W", cause="matmul", writes=own, lane="filler",
                        seconds=float(time.weight_s[0]),
                        uneven_s={d: float(t.weight_s[0]) for d, t in uneven.items()},
                    )
                )
            )  # fmt: skip

    def _statistics(self, cell: Cell) -> tuple[Value, ...]:
        """What a loss over a split vocabulary has summed; it is done again first where the plan says so."""
        b, (index, chunk) = self.builder, cell
        instance, placed = b.instances[index], b.placed[index]
        if instance.op.kind == "loss" and placed.recompute and cell not in self.remade:
            self._again(instance.outputs[0], cell)
        if not splits_vocabulary(b, index):
            return ()
        tensor = statistics_of(instance.op)
        name = chunk_name(f"{instance.block}/{tensor.name}", instance.op, tensor, placed, chunk)
        return (Value(name, replace(statistics_layout(b, index), partial=())),)

    def _streamed(self, first: int, index: int) -> dict[Value, int]:
        """Gathers since step `first` that arrive while the operator works."""
        b = self.builder
        return {
            value: number
            for number in range(first, len(b.steps))
            for value in b.steps[number].writes
            if b.placed[index].stream and b.steps[number].cause == "cp"
        }

    def _send_home(self, writes: Sequence[Value], index: int, step: int) -> None:
        """Sum partial gradients of keys and values together, where those were made; streamed ones as they come."""
        b = self.builder
        first = len(b.steps)
        together = Store()
        wanted: list[tuple[str, Layout]] = []
        for value in writes:
            home = b.homes.get(value.name.removeprefix("d:"))
            if value.layout.partial and home is not None:
                together.versions[value.name] = {value.layout: self.gradients.versions[value.name][value.layout]}
                wanted.append((value.name, replace(home, partial=())))
        b.fetch(together, wanted, index, "I")
        if b.placed[index].stream:
            for number in range(first, len(b.steps)):
                b.steps[number] = b.steps[number].set(alongside=step)
        for name, layout in wanted:
            for number in together.versions[name][layout]:
                self.gradients.add(name, layout, number)
            for other in self.gradients.layouts(name):
                if other != layout and other.partial:
                    self.gradients.drop(name, other)

    def _incoming(self, cell: Cell) -> tuple[Value, ...]:
        """The gradients of what the operator wrote, each contribution in the layout that it needs."""
        b, (index, chunk) = self.builder, cell
        instance, placed = b.instances[index], b.placed[index]
        op = instance.op
        wanted: list[tuple[str, Layout]] = []
        for name, tensor in zip(instance.outputs, (op.output, *op.extra_outputs), strict=True):
            own = gradient(chunk_name(name, op, tensor, placed, chunk))
            own = own if own in self.gradients else gradient(name)
            if own in self.gradients:
                wanted.append((own, b.layout(index, tensor, "gradient of written")))
        return tuple(
            value
            for name, layout in wanted
            for value in self._summed(name, layout, index)
        )

    def _summed(self, name: str, layout: Layout, index: int) -> tuple[Value, ...]:
        """Every contribution to a gradient, moved to one layout; those that are there already stay."""
        b = self.builder
        others = [each for each in self.gradients.layouts(name) if each != layout]
        for other in others:
            apart = Store({name: {other: self.gradients.versions[name][other]}})
            b.fetch(apart, [(name, layout)], index, "I")
            for step in apart.versions[name][layout]:
                self.gradients.add(name, layout, step)
            self.gradients.drop(name, other)
        return (Value(name, layout),)

    def _saved(self, cell: Cell) -> tuple[Value, ...]:
        """What the operator kept for its backward, done again where the plan says so."""
        b, (index, chunk) = self.builder, cell
        instance, placed = b.instances[index], b.placed[index]
        op = instance.op
        names = {
            tensor.name: (name, tensor, "read")
            for name, tensor in zip(instance.inputs, op.inputs, strict=True)
        } | {
            tensor.name: (name, tensor, "written")
            for name, tensor in zip(instance.outputs, (op.output, *op.extra_outputs), strict=True)
        }  # fmt: skip
        wanted: list[tuple[str, Layout]] = []
        store = self.kept
        for tensor in op.saved:
            if tensor.name not in names or names[tensor.name][0].startswith("input/"):
                continue
            name, used, role = names[tensor.name]
            found = self._find(chunk_name(name, op, used, placed, chunk), name, cell)
            if found is None:
                continue
            store, own = found
            layout = b.layout(index, used, role, b.written_dims[own])  # type: ignore[arg-type]
            wanted.append((own, layout))
        values: list[Value] = []
        again = self.again.store if self.again is not None else Store()
        for store in (again, self.kept):
            mine = [(own, layout) for own, layout in wanted if (own in again) == (store is again)]
            if op.kind == "attention":
                store = _without_gathered(store, [own for own, _ in mine])
            values += b.fetch(store, mine, index, "I")
        return tuple(values)

    def _find(self, name: str, whole: str, cell: Cell) -> tuple[Store, str] | None:
        """Where a kept value is: what was done again first, then what was kept; done again if it must be."""
        for _ in range(2):
            for each in (name, whole):
                if self.again is not None and each + "~" in self.again.store:
                    return self.again.store, each + "~"
                for own in (each + BROUGHT, each):
                    if own in self.kept:
                        return self.kept, own
            self._again(whole, cell)
        return None

    def _again(self, name: str, cell: Cell) -> None:
        """Do the run of operators that made a value again: up to the ends of what the plan recomputes."""
        b = self.builder
        writers = [
            at
            for at, (index, chunk) in enumerate(self.order)
            if name in b.instances[index].outputs and (chunk == cell[1] or b.placed[index].serial[1] == 1)
        ]
        if not writers:
            return
        if self.again is None:
            self.again = Forward(builder=b, phase="R", suffix="~", store=_plain(self.kept))
        self.again.weights = self.weights
        for each in self._run_around(writers[0]):
            if each not in self.remade:
                self.remade.add(each)
                self.again.run(each)

    def _run_around(self, at: int) -> Iterator[Cell]:
        """The cells around one that are recomputed with it: neighbours in its block and its serial part."""
        if self.builder.placed[self.order[at][0]].serial[1] > 1:
            yield from self._read_before(at)

        def belongs(other: int) -> bool:
            (index, chunk), (own, part) = self.order[other], self.order[at]
            b = self.builder
            return (
                b.placed[index].recompute
                and b.instances[index].block == b.instances[own].block
                and (chunk == part or 1 in (b.placed[index].serial[1], b.placed[own].serial[1]))
            )

        first = last = at
        while first > 0 and belongs(first - 1):
            first -= 1
        while last + 1 < len(self.order) and belongs(last + 1):
            last += 1
        yield from self.order[first : last + 1]

    def _read_before(self, at: int) -> list[Cell]:
        """What a serial part reads of its block that is made whole before all parts, and is not kept."""
        b, (own, part) = self.builder, self.order[at]
        region = b.instances[own].block
        cells = [cell for cell in self.order if b.instances[cell[0]].block == region]
        wanted = {
            name for index, chunk in cells if chunk == part and b.placed[index].serial == b.placed[own].serial
            for name in b.instances[index].inputs
        }  # fmt: skip
        found: list[Cell] = []
        for index, chunk in reversed(cells):
            made = wanted.intersection(b.instances[index].outputs)
            again = b.placed[index].recompute and b.placed[index].serial[1] == 1
            if again and any(name not in self.kept for name in made):
                found.append((index, chunk))
                wanted.update(b.instances[index].inputs)
        return found[::-1]

    def _outgoing(self, cell: Cell) -> Iterator[Value]:
        """The gradients of the operator's inputs."""
        b, (index, chunk) = self.builder, cell
        instance, placed = b.instances[index], b.placed[index]
        for name, tensor in zip(instance.inputs, instance.op.inputs, strict=True):
            if name.startswith("input/") or tensor.element in ("index", "mask") or tensor.name in CARRIED:
                continue
            own = chunk_name(name, instance.op, tensor, placed, chunk)
            own = own if own in b.shapes else name
            yield Value(gradient(own), b.layout(index, tensor, "gradient of read", b.written_dims[own]))


def _without_gathered(store: Store, names: Sequence[str]) -> Store:
    """Values as they were made: what attention gathers is not kept, not even when it is done again."""
    return Store(
        {
            name: {
                layout: store.versions[name][layout]
                for layout in store.layouts(name)
                if is_no_larger(layout, store.layouts(name)[0])
            }
            for name in names
        }
    )


def _plain(kept: Store) -> Store:
    return Store({name: dict(versions) for name, versions in kept.versions.items()})


def _cause(kind: str) -> str:
    return {"matmul": "matmul", "grouped_matmul": "matmul", "attention": "attention"}.get(kind, "streaming")
