"""Counting what is really passed to torch.distributed: a wrapper around its calls, not a formula."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

_KINDS = {
    "all_reduce": ("all-reduce", 0), "all_gather": ("all-gather", 1), "all_to_all_single": ("all-to-all", 1),
    "broadcast": ("broadcast", 0), "send": ("send", 0), "isend": ("send", 0), "reduce": ("reduce", 0),
    "all_gather_into_tensor": ("all-gather", 1), "reduce_scatter_tensor": ("reduce-scatter", 1),
}  # fmt: skip


@dataclass(slots=True)
class Tally:
    """Bytes and calls, by the kind of collective; `remote_bytes` leaves out what a worker sends itself."""

    bytes: dict[str, int] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    remote_bytes: int = 0  # of exchanges
    paused: bool = False

    def add(self, kind: str, passed: torch.Tensor) -> None:
        """One more call."""
        if not self.paused:
            self.bytes[kind] = self.bytes.get(kind, 0) + passed.numel() * passed.element_size()
            self.calls[kind] = self.calls.get(kind, 0) + 1


@contextmanager
def counted() -> Iterator[Tally]:
    """A tally of all that this process passes to collectives and sends meanwhile."""
    tally = Tally()
    calls = {name: getattr(dist, name) for name in _KINDS}
    for name in calls:
        setattr(dist, name, _counting(tally, name))
    try:
        yield tally
    finally:
        for name, call in calls.items():
            setattr(dist, name, call)


def _counting(tally: Tally, name: str) -> Callable[..., Any]:
    call, (kind, place) = getattr(dist, name), _KINDS[name]

    def passed(*arguments: Any, **named: Any) -> Any:
        tally.add(kind, arguments[place])
        if kind == "all-to-all" and not tally.paused:
            splits = arguments[3]
            own = splits[dist.get_rank()] * arguments[1].element_size()
            tally.remote_bytes += arguments[1].numel() * arguments[1].element_size() - own
        return call(*arguments, **named)

    return passed
