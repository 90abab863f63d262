"""Lowering of the backward pass: gradients of inputs and of weights, what is computed again for them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from trainwright.model.graph import NO_GRADIENT, trained_weights
from trainwright.plan.rules import split_dim
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
    makers: dict[str, list[int]] = field(default_factory=dict)  # places in the order that write a value

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
        keeps = b.placed[index].recompute and b.placed[index].freed == frozenset()
        if keeps and instance.op.kind == "attention":
            self._do_again(cell)  # its result is kept, what it saved for itself is not
        saved = self._saved(cell) + self._statistics(cell)
        for number in range(first, len(b.steps)):
            if b.steps[number].phase == "R":
                b.steps[number] = b.steps[number].set(after_weights=tuple(self.weights_done))
        beside = self._streamed(first, index)
        time = b.time(index)
        uneven = b.device_times(index)
        writes = tuple(self._outgoing(cell))
        weights = instance.op.kind in ("matmul", "grouped_matmul")
        needed = tuple(value for value in saved if value not in beside)
        own = (Value(STATE_GRADIENT + instance.name, b.layout(index, instance.op.output, "written")),)
        plain = Step(
            name=instance.name, phase="I", kind="compute", cause=_cause(instance.op.kind),
            mesh=b.placed[index].mesh, stage=b.stages[index], block=instance.block, instance=index,
            chunk=chunk,
        )  # fmt: skip
        # A product's gradient of its input does not need that input: only that of its weights does.
        used = (() if weights else needed, self.weights if instance.op.weights else ())
        step = b.add(
            plain.set(
                reads=(*incoming, *used[0], *used[1]), writes=writes if weights else (*writes, *own),
                scale=answer_weight(b, index) if instance.op.kind == "loss" else 1.0,
                seconds=float(time.data_s[0]), kernels=float(time.kernels[0]),
                uneven_s={d: float(t.data_s[0]) for d, t in uneven.items()},
                after_weights=(*self.weights_done, *after), beside=tuple(dict.fromkeys(beside.values())),
            )
        )  # fmt: skip
        self.last = step
        for value in writes:
            self.gradients.add(value.name, value.layout, step)
        if instance.op.kind == "attention":
            self._send_home(writes, index, step)
        if weights and trained_weights(instance.op):
            later = plain.set(
                reads=(*incoming, *needed), phase="W", cause="matmul", writes=own, lane="filler",
                seconds=float(time.weight_s[0]),
                uneven_s={d: float(t.weight_s[0]) for d, t in uneven.items()},
            )  # fmt: skip
            self.weights_now.append(b.add(later))

    def _statistics(self, cell: Cell) -> tuple[Value, ...]:
        """What a loss over a split vocabulary has summed; it is done again first where the plan says so."""
        b, (index, chunk) = self.builder, cell
        instance, placed = b.instances[index], b.placed[index]
        if instance.op.kind == "loss" and placed.recompute:
            self._do_again(cell)
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
            if b.placed[index].stream and b.steps[number].cause == "cp" and b.steps[number].phase == "I"
        }

    def _send_home(self, writes: Sequence[Value], index: int, step: int) -> None:
        """Sum partial gradients of keys and values where those were made; streamed ones as they come."""
        b = self.builder
        first = len(b.steps)
        together = Store()
        wanted: list[tuple[str, Layout]] = []
        for value in writes:
            name = value.name.removeprefix("d:")
            home = b.homes.get(name)
            if value.layout.partial and home is not None and "batch" in b.shapes[name].dims:
                together.versions[value.name] = {
                    value.layout: self.gradients.versions[value.name][value.layout]
                }
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
            # Readers inside the region give gradients of parts, those outside it of the whole.
            for own in dict.fromkeys((chunk_name(name, op, tensor, placed, chunk), name)):
                if gradient(own) in self.gradients:
                    wanted.append((gradient(own), b.layout(index, tensor, "gradient of written")))
        return tuple(value for name, layout in wanted for value in self._summed(name, layout, index))

    def _summed(self, name: str, layout: Layout, index: int) -> tuple[Value, ...]:
        """Every contribution to a gradient, moved to one layout; those that are there already stay."""
        b = self.builder
        others = [each for each in self.gradients.layouts(name) if each != layout]
        while others:
            other, stop = self._next(name, others, layout)
            apart = Store({name: {other: self.gradients.versions[name][other]}})
            if stop in self.gradients.layouts(name) and not b.moves(name, other, stop):
                b.add_up(apart, name, other, stop, index)
            b.fetch(apart, [(name, stop)], index, "I")
            for step in apart.versions[name][stop]:
                self.gradients.add(name, stop, step)
            self.gradients.drop(name, other)
            others.remove(other)
        return (Value(name, layout),)

    def _next(self, name: str, others: Sequence[Layout], layout: Layout) -> tuple[Layout, Layout]:
        """A contribution and where to move it: first one that comes by another, to be added to that."""
        for other in others if len(others) > 1 else ():
            for stop in self.builder.moves(name, other, layout)[:-1]:
                if stop.target in others:
                    return other, stop.target
        return others[0], layout

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
            self._again(name, whole, cell)
        return None

    def _again(self, name: str, whole: str, cell: Cell) -> None:
        """Make a value that was not kept: do again what made it, as far as the plan recomputes."""
        again = self._begin_again()
        writers = self._writers(name, whole)
        for at in writers:
            if not self._made(self.order[at]):
                for each in self._run_around(at):
                    self._remake(each)
        if any("#" in own and own != name for own in writers.values()):
            again.join(whole, cell)

    def _do_again(self, cell: Cell) -> None:
        """Do a cell again before its backward, though no other reads what it makes."""
        if cell not in self.remade:
            self._begin_again()
            for each in self._run_around(self.order.index(cell)):
                self._remake(each)

    def _begin_again(self) -> Forward:
        """The pass of what is done again, with the weights at hand."""
        if self.again is None:
            self.again = Forward(builder=self.builder, phase="R", suffix="~", store=_plain(self.kept))
        self.again.weights = self.weights
        return self.again

    def _writers(self, name: str, whole: str) -> dict[int, str]:
        """The places of what made a value (all of it, unless `name` is a part), and what they made."""
        b, found = self.builder, {}
        if not self.makers:
            for at, (index, _) in enumerate(self.order):
                for own in b.instances[index].outputs:
                    self.makers.setdefault(own, []).append(at)
        for at in self.makers.get(whole, ()):
            index, chunk = self.order[at]
            op = b.instances[index].op
            for own, tensor in zip(b.instances[index].outputs, (op.output, *op.extra_outputs), strict=True):
                if own == whole:
                    found[at] = chunk_name(own, op, tensor, b.placed[index], chunk)
        return {at: own for at, own in found.items() if own == name} or found

    def _made(self, cell: Cell) -> bool:
        """Whether what a cell writes is kept, or was done again."""
        b, (index, chunk) = self.builder, cell
        op, outputs = b.instances[index].op, b.instances[index].outputs
        names = [
            chunk_name(name, op, tensor, b.placed[index], chunk)
            for name, tensor in zip(outputs, (op.output, *op.extra_outputs), strict=True)
        ]
        return cell in self.remade or all(own in self.kept or own + BROUGHT in self.kept for own in names)

    def _remake(self, cell: Cell) -> None:
        """Do one cell again, after those that make what it reads; of those that make a sum, all."""
        b, (index, chunk) = self.builder, cell
        assert self.again is not None
        instance, placed = b.instances[index], b.placed[index]
        if cell in self.remade or (placed.serial[1] > 1 and self._made(cell)):
            return  # a sum of serial parts is kept, so that one part can be done again without the others
        self.remade.add(cell)
        for name, tensor in zip(instance.inputs, instance.op.inputs, strict=True):
            for at in self._writers(chunk_name(name, instance.op, tensor, placed, chunk), name):
                if not self._made(self.order[at]):
                    self._remake(self.order[at])
        self.again.run(cell)
        if split_dim(instance.op, instance.op.output, placed.serial[0]) is None:
            for other in range(placed.serial[1]):
                self._remake((index, other))

    def _run_around(self, at: int) -> Iterator[Cell]:
        """The cells around one that are recomputed with it: neighbours in its block and its serial part."""

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

    def _outgoing(self, cell: Cell) -> Iterator[Value]:
        """The gradients of the operator's inputs."""
        b, (index, chunk) = self.builder, cell
        instance, placed = b.instances[index], b.placed[index]
        for name, tensor in zip(instance.inputs, instance.op.inputs, strict=True):
            if name.startswith("input/") or tensor.element in NO_GRADIENT or tensor.name in CARRIED:
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
