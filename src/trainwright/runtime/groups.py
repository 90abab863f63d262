"""Groups of processes that communicate with one another, made once and by all of them alike."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist

Members = tuple[int, ...]  # ascending: their order is that of the group


@dataclass(slots=True)
class Groups:
    """Process groups by their members."""

    made: dict[Members, dist.ProcessGroup] = field(default_factory=dict)

    def of(self, members: Members) -> dist.ProcessGroup:
        """The group of some ranks."""
        return self.made[members]

    def close(self) -> None:
        """Give up the groups, with the threads and connections that they hold."""
        for group in self.made.values():
            dist.destroy_process_group(group)
        self.made.clear()


def build_groups(wanted: Iterable[Iterable[int]], timeout: timedelta) -> Groups:
    """All groups that are wanted; every process must ask for the same ones."""
    found = Groups()
    listed = {tuple(sorted(each)) for each in wanted}
    for members in sorted(each for each in listed if len(each) > 1):
        found.made[members] = dist.new_group(list(members), timeout=timeout)
    return found


# Newer releases of PyTorch call these `_single`.
_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def start_gather(out: torch.Tensor, part: torch.Tensor, group: dist.ProcessGroup) -> dist.Work:
    """Begin to put the parts of all members one after another into `out`."""
    work: dist.Work = _gather(out, part, group=group, async_op=True)
    return work


def start_scatter(out: torch.Tensor, whole: torch.Tensor, group: dist.ProcessGroup) -> dist.Work:
    """Begin to sum `whole` over all members, each keeping its part."""
    work: dist.Work = _scatter(out, whole, group=group, async_op=True)
    return work
