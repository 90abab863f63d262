"""Tasks that wait for each other, found and named."""

import numpy as np

from trainwright.errors import BadInput
from trainwright.program.table import ONCE, Floats, Ints, Table

_NAMED = 8  # tasks of a cycle that a message repeats


class Deadlock(BadInput):
    """A cycle of order and data: each task of it waits for the next, the last for the first."""

    def __init__(self, table: Table, cycle: tuple[int, ...]) -> None:
        self.cycle = tuple(task_name(table, task) for task in cycle)
        first, *others = self.cycle
        named = [*others[:_NAMED], *(["…"] if len(others) > _NAMED else []), first]
        super().__init__(
            "deadlock at",
            first,
            "it waits for " + ", that for ".join(named),
            "change the order of one of these",
        )


def task_name(table: Table, task: int) -> str:
    """A task as people know it: label, microbatch, first device of its place."""
    label, microbatch = table.labels[table.label[task]], int(table.microbatch[task])
    device = table.places[table.unit_place[table.lane_unit[table.lane[task]]]][0]
    of = "" if microbatch == ONCE else f" of microbatch {microbatch}"
    return f"{label}{of} on device {device}"


def find_cycle(table: Table, end_s: Floats) -> tuple[int, ...]:
    """The tasks of a cycle, given that some never end; of tasks behind the same head, only the head counts.

    A task that waits is either behind the head of its lane, or such a head, and then one of its inputs waits.
    """
    heads = _waiting_heads(table, end_s)
    task = int(heads[heads >= 0][0])
    walked: dict[int, int] = {}
    while task not in walked:
        walked[task] = len(walked)
        head = int(heads[table.lane[task]])
        task = head if head != task else _waiting_input(table, end_s, task)
    return tuple(walked)[walked[task] :]


def _waiting_heads(table: Table, end_s: Floats) -> Ints:
    """The first task of each lane that never ends, or -1."""
    waiting = table.queue[np.isnan(end_s[table.queue])]
    heads = np.full(len(table.lane_unit), -1, np.int32)
    heads[table.lane[waiting[::-1]]] = waiting[::-1]
    return heads


def _waiting_input(table: Table, end_s: Floats, task: int) -> int:
    inputs = table.inputs[table.first_input[task] : table.first_input[task + 1]]
    return int(inputs[np.isnan(end_s[inputs])][0])
