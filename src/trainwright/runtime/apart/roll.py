"""Who is in which group of workers: the launcher names it, and workers answer, in a store that all see."""

from collections.abc import Iterable
from dataclasses import dataclass

from torch._C._distributed_c10d import Store


@dataclass(frozen=True, slots=True)
class Roll:
    """Groups have numbers, workers the names of their places; a process that takes a place has its own id."""

    store: Store

    def name(self, group: int, members: Iterable[int]) -> None:
        """Say who is in a group; workers of the one before go there."""
        self.store.set(f"members/{group}", ",".join(map(str, members)))

    def named(self, group: int) -> bool:
        """Whether it was said who is in a group."""
        return self.store.check([f"members/{group}"])

    def members(self, group: int) -> list[int]:
        """Who is in a group that was named."""
        return [int(each) for each in self.store.get(f"members/{group}").decode().split(",")]

    def come(self, group: int, name: int) -> None:
        """Be there."""
        self.store.set(f"there/{group}/{name}", "")

    def all_there(self, group: int) -> bool:
        """Whether all members have come."""
        return self.store.check([f"there/{group}/{each}" for each in self.members(group)])

    def form(self, group: int) -> None:
        """Say that all members are connected."""
        self.store.set(f"formed/{group}", "")

    def formed(self, group: int) -> bool:
        """Whether all members are connected."""
        return self.store.check([f"formed/{group}"])

    def leave(self, group: int, name: int) -> None:
        """Give a group up: another worker was not to be reached."""
        self.store.set(f"left/{group}/{name}", "")
        self.store.set(f"left/{group}", "")

    def left(self, group: int) -> list[int]:
        """Who has given a group up."""
        if not self.store.check([f"left/{group}"]):
            return []
        return [each for each in self.members(group) if self.store.check([f"left/{group}/{each}"])]

    def over(self, group: int) -> bool:
        """Whether a group that has yet to form never will: one has given it up, or there is a later one."""
        return self.store.check([f"left/{group}"]) or self.named(group + 1)

    def wait_in_line(self, process: int) -> None:
        """Say that a process is up, and can be in a group."""
        self.store.set(f"up/{process}", "")

    def in_line(self, process: int) -> bool:
        """Whether a process has said so."""
        return self.store.check([f"up/{process}"])

    def finish(self, group: int) -> None:
        """Say that a group has come to the end of the run."""
        self.store.set("finished", str(group))

    def finished(self) -> int:
        """The group that has come to the end of the run."""
        return int(self.store.get("finished"))
