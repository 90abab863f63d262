"""One device's part of a step as a graph of nodes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from trainwright.export.chakra.flops import step_flops
from trainwright.export.chakra.messages import Message, collective_of, messages_of
from trainwright.export.chakra.node import (
    COLLECTIVES,
    COMM_COLL,
    COMM_RECV,
    COMM_SEND,
    COMP,
    MEM_LOAD,
    MEM_STORE,
    Node,
)
from trainwright.program.entries import step_label
from trainwright.program.lower import Program
from trainwright.program.sequence import Turn, end_inputs, inputs_of, sequence, takes_part
from trainwright.program.state import update_s
from trainwright.program.step import Step
from trainwright.program.tabulate import is_merged, orders_of
from trainwright.program.values import held_bytes

_MICRO = 1e6


@dataclass(slots=True, kw_only=True)
class Tracer:
    """What all devices of a program share: the order of turns, what waits for what, and names of groups."""

    program: Program
    turns: Sequence[Turn]
    inputs: list[list[tuple[tuple[int, int], ...]]]  # by route and step: the steps (route, number) before it
    merged: bool
    groups: dict[tuple[int, ...], str] = field(default_factory=dict)  # names of process groups

    @classmethod
    def of(cls, program: Program) -> "Tracer":
        """The tracer of a program."""
        return cls(
            program=program, turns=sequence(program), inputs=_all_inputs(program),
            merged=is_merged(orders_of(program)),
        )  # fmt: skip

    def nodes(self, device: int) -> list[Node]:
        """The nodes of a device, each after those that it waits for."""
        made = _Made(tracer=self, device=device)
        for number, turn in enumerate(self.turns):
            step = self.program.routes[turn.route].steps[turn.step]
            if takes_part(step, device):
                made.add(turn, step, number)
        made.finish()
        return made.listed

    def group(self, members: tuple[int, ...]) -> str:
        """The name of a process group: numbers, from 1 on, as ASTRA-sim reads them."""
        return self.groups.setdefault(tuple(sorted(members)), str(len(self.groups) + 1))


def _all_inputs(program: Program) -> list[list[tuple[tuple[int, int], ...]]]:
    """As `inputs_of`, with what reductions wait for, and with gathers before the blocks that need them."""
    found = []
    for number, route in enumerate(program.routes):
        gathers: dict[str, list[int]] = {}
        for index, step in enumerate(route.steps):
            if step.phase == "P":
                gathers.setdefault(step.block, []).append(index)
        own = []
        plain, ends = inputs_of(route), list(end_inputs(program, number))
        for index, step in enumerate(route.steps):
            waits = list(ends[index]) if step.phase == "S" else [(number, each) for each in plain[index]]
            if step.phase in "FN" and step.kind == "compute":
                waits += [(number, each) for each in gathers.get(step.block, ())]
            own.append(tuple(dict.fromkeys(each for each in waits if each != (number, index))))
        found.append(own)
    return found


@dataclass(slots=True, kw_only=True)
class _Made:
    """The nodes of one device so far."""

    tracer: Tracer
    device: int
    listed: list[Node] = field(default_factory=list)
    at: dict[tuple[int, int], dict[int, tuple[int, ...]]] = field(default_factory=dict)  # step, microbatch
    computed: int = -1  # the last node that computes, or that nothing is computed beside
    spoken: dict[str, int] = field(default_factory=dict)  # the last node of each process group

    def add(self, turn: Turn, step: Step, number: int) -> None:
        """Add the nodes of a turn."""
        key, before = (turn.route, turn.step), self._before(turn)
        numbers = tuple(self._nodes(turn, step, number, before)) or before
        self.at.setdefault(key, {})[turn.microbatch] = numbers

    def _before(self, turn: Turn) -> tuple[int, ...]:
        """The nodes of this device that a turn waits for; what is done once waits for all microbatches."""
        found: dict[int, None] = {}
        for key in self.tracer.inputs[turn.route][turn.step]:
            made = self.at.get(key, {})
            if turn.microbatch < 0:
                wanted = list(made.values())
            else:
                wanted = [made[each] for each in (turn.microbatch, -1) if each in made]
            found |= dict.fromkeys(node for nodes in wanted for node in nodes)
        return tuple(found)

    def _nodes(self, turn: Turn, step: Step, number: int, before: tuple[int, ...]) -> Iterator[int]:
        program = self.tracer.program
        name = step_label(step, merged=self.tracer.merged)
        about: dict[str, int | str | bool] = {"is_cpu_op": False, "cause": step.cause}
        if turn.microbatch >= 0:
            name, about["microbatch"] = f"{name}.{turn.microbatch}", turn.microbatch
        collective = collective_of(program, turn.route, step, self.device)
        if collective is not None:
            group = self.tracer.group(collective.members)
            about |= {
                "comm_type": COLLECTIVES[collective.kind], "comm_size": round(collective.size_bytes),
                "pg_name": group,
            }  # fmt: skip
            exposed = step.blocking >= 1.0  # it takes its turn among what the device computes
            after = [self.spoken.get(group, -1), self.computed if exposed else -1]
            self.spoken[group] = self._append(COMM_COLL, name, before, after, step, about)
            if exposed:
                self.computed = self.spoken[group]
            yield self.spoken[group]
            return
        messages = list(messages_of(program, turn.route, step))
        if messages:
            yield from self._messages(name, before, step, about, messages, number)
        elif step.kind == "copy":
            about["tensor_size"] = round(step.bytes)
            away = step.phase == "F"  # and what comes back, not before its turn: there is no room for all
            after = [] if away else [self.computed]
            yield self._append(MEM_STORE if away else MEM_LOAD, name, before, after, step, about)
        else:
            yield self._compute(turn, step, name, before, about)

    def _messages(
        self,
        name: str,
        before: tuple[int, ...],
        step: Step,
        about: dict[str, int | str | bool],
        messages: Sequence[Message],
        tag: int,
    ) -> Iterator[int]:
        for source, target, size in messages:
            ends: dict[str, int | str | bool] = {
                "comm_size": round(size),
                "comm_src": source,
                "comm_dst": target,
                "comm_tag": tag,
            }
            if source == self.device:
                yield self._append(COMM_SEND, f"{name} to {target}", before, [], step, about | ends)
            elif target == self.device:
                yield self._append(COMM_RECV, f"{name} from {source}", before, [], step, about | ends)

    def _compute(
        self, turn: Turn, step: Step, name: str, before: tuple[int, ...], about: dict[str, int | str | bool]
    ) -> int:
        """A node that computes; they follow one another."""
        route = self.tracer.program.routes[turn.route]
        touched = {value for value in (*step.reads, *step.writes) if value.name in route.shapes}
        about["num_ops"] = round(step_flops(self.tracer.program.builders[turn.route], step, self.device))
        about["tensor_size"] = max(
            round(sum(held_bytes(route.shapes[value.name], value.layout) for value in touched)), 1
        )
        self.computed = self._append(COMP, name, before, [self.computed], step, about)
        return self.computed

    def _append(
        self,
        kind: int,
        name: str,
        before: tuple[int, ...],
        after: Sequence[int],
        step: Step,
        about: dict[str, int | str | bool],
    ) -> int:
        seconds = step.uneven_s.get(self.device, step.seconds)
        node = Node(
            number=len(self.listed), name=name, kind=kind, data_deps=before,
            ctrl_deps=tuple(sorted({each for each in after if each >= 0 and each not in before})),
            duration_micros=micros(seconds), attributes=about,
        )  # fmt: skip
        self.listed.append(node)
        return node.number

    def finish(self) -> None:
        """The optimizer's update, after everything else."""
        program = self.tracer.program
        own = [
            (builder, bundle)
            for builder, route in zip(program.builders, program.routes, strict=True)
            for bundle in route.bundles
            if self.device in bundle.mesh.devices
        ]
        seconds = sum(update_s(builder, [bundle]) for builder, bundle in own)
        awaited = {dep for node in self.listed for dep in (*node.data_deps, *node.ctrl_deps)}
        last = tuple(node.number for node in self.listed if node.number not in awaited)
        about: dict[str, int | str | bool] = {
            "is_cpu_op": False, "cause": "optimizer", "num_ops": 0, "tensor_size": 1,
        }  # fmt: skip
        self.listed.append(
            Node(
                number=len(self.listed), name="optimizer update S", kind=COMP, data_deps=last,
                duration_micros=micros(seconds), attributes=about,
            )
        )  # fmt: skip


def micros(seconds: float) -> int:
    """Whole microseconds; at least one of what takes any time."""
    return max(round(seconds * _MICRO), 1) if seconds > 0.0 else 0
