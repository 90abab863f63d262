"""The costs of an algorithm over a run: communication, memory and compute of a worker per step."""

from collections.abc import Mapping
from dataclasses import dataclass

from trainwright.algorithm.anatomy import Anatomy
from trainwright.algorithm.message import FLOAT_BYTES, Message, payload, sent_bytes
from trainwright.algorithm.protocol import Algorithm, Compute, Seat

_MOMENTS = {"sgd": 0, "momentum": 1, "adamw": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What a run asks of a worker, as means over its steps."""

    payload_bytes_per_step: Mapping[str, float]  # passed to collectives, by kind
    sent_bytes_per_step: float  # over its link
    rounds_per_step: float  # collectives, each of which costs latency
    memory_bytes: float
    compute: Compute


def all_messages(algorithm: Algorithm, anatomy: Anatomy, seat: Seat) -> tuple[Message, ...]:
    """What a worker passes to collectives in a whole run."""
    return tuple(each for step in range(seat.steps) for each in algorithm.messages(anatomy, seat, step))


def charge(algorithm: Algorithm, anatomy: Anatomy, seat: Seat, optimizer: str = "adamw") -> Charge:
    """The costs of a run whose workers update weights by that optimizer: sgd, momentum or adamw."""
    messages = all_messages(algorithm, anatomy, seat)
    memory, steps = algorithm.memory(anatomy, seat.workers), max(seat.steps, 1)
    held = memory.weights + memory.gradients + _MOMENTS[optimizer] * memory.moments + memory.beside
    return Charge(
        payload_bytes_per_step={kind: size / steps for kind, size in payload(messages).items()},
        sent_bytes_per_step=sum(sent_bytes(each, seat.workers) for each in messages) / steps,
        rounds_per_step=len(messages) / steps,
        memory_bytes=FLOAT_BYTES * held,
        compute=algorithm.compute(anatomy, seat.workers),
    )
