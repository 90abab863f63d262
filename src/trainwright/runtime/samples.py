"""The order of data: which tokens each sample of each step is, whatever the plan."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trainwright.errors import BadInput
from trainwright.runtime.tokens import Tokens, check_values
from trainwright.runtime.work import IGNORED
from trainwright.runtime.worker import Microbatch

_ROUNDS = 4  # of the Feistel network


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Windows of `sequences` times `seq` tokens and the token after; the last are held out for evaluation.

    Sample `i` of step `s` is number `s * batch + i`, and the window of a number depends on it, on `seed`
    and on the file alone. Every window is used once before any is used again, in another order.
    """

    tokens: Tokens
    vocab: int
    seq: int
    batch: int
    sequences: int = 1  # in a window
    seed: int = 0
    held_out: float = 0.05  # share of the windows

    def __post_init__(self) -> None:
        if self.windows - self.evaluated < 1:
            raise BadInput(
                "token file", self.tokens.name,
                f"has {len(self.tokens.values)} tokens, too few for samples of {self.length}",
                f"use a longer file, or --seq {max((len(self.tokens.values) - 1) // (2 * self.sequences), 1)}"
                " or less",
            )  # fmt: skip

    @property
    def length(self) -> int:
        """Tokens of a window, without the one after it."""
        return self.seq * self.sequences

    @property
    def windows(self) -> int:
        """Windows of the file."""
        return (len(self.tokens.values) - 1) // self.length

    @property
    def evaluated(self) -> int:
        """Windows that are held out: the last ones, at least one."""
        return max(int(self.windows * self.held_out), 1)

    def step(self, number: int) -> NDArray[np.int64]:
        """The samples of a training step, and one token more of each."""
        first = number * self.batch
        return self._rows([self._window(first + i) for i in range(self.batch)])

    def evaluation(self, number: int) -> NDArray[np.int64] | None:
        """A batch of what is held out, in order; the last may be smaller; none after it."""
        first = self.windows - self.evaluated + number * self.batch
        windows = range(first, min(first + self.batch, self.windows))
        return self._rows(windows) if windows else None

    def _window(self, number: int) -> int:
        """The window of a sample: in every epoch a permutation of its own."""
        count = self.windows - self.evaluated
        epoch, place = divmod(number, count)
        return permuted(place, count, f"{self.seed}/{epoch}".encode())

    def _rows(self, windows: Sequence[int]) -> NDArray[np.int64]:
        return np.stack([self._row(window) for window in windows])

    def _row(self, window: int) -> NDArray[Any]:
        start = window * self.length
        found = self.tokens.values[start : start + self.length + 1]
        check_values(self.tokens, found, self.vocab, start)
        return found.astype(np.int64)


def permuted(place: int, count: int, key: bytes) -> int:
    """Where a permutation of `count` places, chosen by `key`, takes one of them.

    A Feistel network (Luby & Rackoff 1988) over the next power of four, walked until it is inside.
    """
    half = max((count - 1).bit_length() + 1, 2) // 2
    while True:
        left, right = place >> half, place & ((1 << half) - 1)
        for number in range(_ROUNDS):
            left, right = right, left ^ (_scrambled(right, number, key) & ((1 << half) - 1))
        place = left << half | right
        if place < count:
            return place


def _scrambled(value: int, number: int, key: bytes) -> int:
    word = value.to_bytes(8, "little") + bytes([number])
    return int.from_bytes(blake2b(word, key=key[:64], digest_size=8).digest(), "little")


def build_microbatches(
    rows: NDArray[np.int64], count: int, batch: int, loss: str, device: torch.device
) -> tuple[Microbatch, ...]:
    """The microbatches of a step for a model that foretells the next token.

    `rows` may be fewer than the step has room for: the others do not count.
    """
    given = np.zeros((count * batch, rows.shape[1] - 1), dtype=np.int64)
    targets = np.full_like(given, IGNORED)
    given[: len(rows)], targets[: len(rows)] = rows[:, :-1], rows[:, 1:]
    return tuple(
        Microbatch(
            given={"input/tokens": torch.from_numpy(given[at : at + batch]).to(device)},
            targets={loss: torch.from_numpy(targets[at : at + batch]).to(device)},
        )
        for at in range(0, count * batch, batch)
    )
