"""Forming a group of processes that is given up if a member dies on the way to it."""

import time
from datetime import timedelta

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from trainwright.runtime.apart.roll import Roll

_LOOK_S = 0.05
_CONNECT_S = 50.0  # to reach a member that has said where it is, and may have died since
_TRIES = 5  # gloo takes as many times what it is given for that


def next_group(roll: Roll, group: int, name: int) -> int:
    """The first group from this one on that a worker is in, once the launcher has named it."""
    while True:
        if not roll.named(group):
            time.sleep(_LOOK_S)  # without a limit: the store, and this loop, end with the launcher
        elif name in roll.members(group):
            return group
        else:
            group += 1


def assemble(roll: Roll, group: int, name: int, patience_s: float) -> None:
    """Wait until all members of a group are there; raises if they do not come."""
    roll.come(group, name)
    end_s = time.monotonic() + patience_s
    while not roll.all_there(group):
        _wait_on(roll, group, end_s)


def connect(roll: Roll, group: int, name: int, timeout_s: float) -> None:
    """Make the members of a group, who are all there, the processes of `torch.distributed`."""
    members = roll.members(group)
    dist.init_process_group(
        "gloo", store=_Watched(roll, group, time.monotonic() + timeout_s), rank=members.index(name),
        world_size=len(members), timeout=timedelta(seconds=min(timeout_s, _CONNECT_S) / _TRIES),
    )  # fmt: skip
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=timeout_s), dist.group.WORLD)
    dist.barrier()
    roll.form(group)


def _wait_on(roll: Roll, group: int, end_s: float) -> None:
    if roll.over(group):
        raise RuntimeError(f"lost peer: group {group} does not form")
    if time.monotonic() > end_s:
        raise RuntimeError(f"timed out: group {group} does not form")
    time.sleep(_LOOK_S)


class _Watched(Store):
    """Where members of a group learn how to reach one another, as long as it may still form."""

    def __init__(self, roll: Roll, group: int, end_s: float) -> None:
        super().__init__()
        self.roll, self.group, self.end_s = roll, group, end_s
        self.inner = PrefixStore(f"group/{group}", roll.store)

    def set(self, key: str, value: str) -> None:
        self.inner.set(_plain(key), value)

    def get(self, key: str) -> bytes:
        self.wait([key])
        return self.inner.get(_plain(key))

    def add(self, key: str, value: int) -> int:
        return self.inner.add(_plain(key), value)

    def check(self, keys: list[str]) -> bool:
        return self.inner.check([_plain(key) for key in keys])

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        while not self.check(keys):
            _wait_on(self.roll, self.group, self.end_s)


def _plain(key: str) -> str:
    """A key without its first part: how many groups this process has tried to form, others maybe not."""
    return key.partition("/")[2]
