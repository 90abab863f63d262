"""Collectives between the processes as functions that can be timed."""

from collections.abc import Callable
from functools import cache

import torch
import torch.distributed as dist

from trainwright.runtime.groups import start_gather, start_scatter


def build_collective(
    kind: str, members: int, size_bytes: int, device: torch.device
) -> Callable[[int], object] | None:
    """A collective in all groups of `members` neighbours at once; None for a process that is in no group.

    Bytes count as in `cost.collective`: what a member holds before it, of an all-gather after it.
    """
    world, rank = dist.get_world_size(), dist.get_rank()
    groups = _groups(world, members)
    if rank // members >= len(groups):
        return None
    first, group = rank // members * members, groups[rank // members]
    whole = torch.ones(max(size_bytes // 4 // members, 1) * members, device=device)
    part = whole[: whole.numel() // members].clone()
    if kind == "all_reduce":
        return lambda _: dist.all_reduce(whole, op=dist.ReduceOp.MAX, group=group)
    if kind == "all_gather":
        return lambda _: start_gather(whole, part, group).wait()
    if kind == "reduce_scatter":
        return lambda _: start_scatter(part, whole, group).wait()
    if kind == "all_to_all":
        came = torch.empty_like(whole)
        return lambda _: dist.all_to_all_single(came, whole, group=group)
    if kind == "broadcast":
        return lambda _: dist.broadcast(whole, src=first, group=group)
    return _exchange(rank, first, members, whole, group)


@cache
def _groups(world: int, members: int) -> list[dist.ProcessGroup]:
    """Groups of neighbours, made once: communicators are dear."""
    if members == world:
        assert dist.group.WORLD is not None
        return [dist.group.WORLD]
    return [dist.new_group(list(range(at, at + members))) for at in range(0, world - members + 1, members)]


def _exchange(
    rank: int, first: int, members: int, sent: torch.Tensor, group: dist.ProcessGroup
) -> Callable[[int], object]:
    """A message to the next member, from the one before, as pipelines send them."""
    came = torch.empty_like(sent)
    following, before = first + (rank - first + 1) % members, first + (rank - first - 1) % members

    def turn(_: int) -> None:
        operations = [
            dist.P2POp(dist.isend, sent, following, group=group),
            dist.P2POp(dist.irecv, came, before, group=group),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()

    return turn
