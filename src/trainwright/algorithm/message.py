"""What a worker tells the others: collectives, and the bytes that are passed to them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["all-reduce", "all-gather", "all-to-all"]
FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A collective of all workers: `bytes` is what each passes to it, on average over the workers.

    Only an all-to-all passes different numbers of bytes at different workers; its own part is among them.
    """

    kind: Kind
    bytes: float


def sent_bytes(message: Message, workers: int) -> float:
    """What a worker sends over its link: a ring for reductions and gathers, direct messages for exchanges.

    An all-reduce of B bytes sends 2B(n-1)/n, an all-gather of B from each B(n-1), an all-to-all the parts of
    the others, B(n-1)/n on average.
    """
    others = workers - 1
    if message.kind == "all-gather":
        return message.bytes * others
    return message.bytes * others / workers * (2 if message.kind == "all-reduce" else 1)


def payload(messages: Iterable[Message]) -> Mapping[str, float]:
    """Bytes passed to collectives, by their kind."""
    found: dict[str, float] = {}
    for message in messages:
        found[message.kind] = found.get(message.kind, 0.0) + message.bytes
    return found
