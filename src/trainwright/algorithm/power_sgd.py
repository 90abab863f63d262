"""PowerSGD: gradients of matrices by one step of power iteration, with feedback (Vogels et al. 2019)."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from trainwright.algorithm.anatomy import Anatomy, Weight
from trainwright.algorithm.checks import check_whole
from trainwright.algorithm.exact import Exact, whole_compute
from trainwright.algorithm.message import FLOAT_BYTES, Message
from trainwright.algorithm.protocol import Compute, Member, Memory, Seat, Talk, Values
from trainwright.algorithm.reducer import GradientMember, Step
from trainwright.algorithm.talk import Sum

if TYPE_CHECKING:
    import torch

    from trainwright.algorithm.learning import Learning
    from trainwright.algorithm.network import Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """A weight as a matrix, where it lies among all, and the rank that its gradient is given."""

    start: int
    rows: int
    columns: int
    rank: int

    @property
    def end(self) -> int:
        """Where it ends among all weights."""
        return self.start + self.rows * self.columns

    @property
    def reduced(self) -> bool:
        """Whether its factors are smaller than it is; else it is sent whole."""
        return (self.rows + self.columns) * self.rank < self.rows * self.columns


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerSgd:
    """Two all-reduces per step: of P = M Q with all that is sent whole, then of Q = M' P, P made orthonormal.

    Q is kept from step to step, and made orthonormal before its use, so that rounding does not grow with the
    square of M's condition; M is the gradient and what was not sent of those before it.
    """

    rank: int = 4

    def __post_init__(self) -> None:
        check_whole("rank", self.rank, 1)

    def matrices(self, anatomy: Anatomy) -> tuple[Matrix, ...]:
        """All weights; what is no matrix has one column."""
        return tuple(self._matrices(anatomy.weights))

    def _matrices(self, weights: tuple[Weight, ...]) -> Iterator[Matrix]:
        start = 0
        for weight in weights:
            rows, columns = _shape(weight.sizes)
            yield Matrix(start=start, rows=rows, columns=columns, rank=min(self.rank, rows, columns))
            start += weight.elements

    def begin(self, network: "Network", learning: "Learning", seat: Seat, start: Values) -> Member:
        """A worker with all weights, no error, and random Q that all share."""
        if seat.workers == 1:
            return Exact().begin(network, learning, seat, start)
        import torch

        from trainwright.algorithm.local import Local

        local = Local(network, learning, start)
        source = torch.Generator().manual_seed(seat.seed)
        kept = {"error": torch.zeros_like(local.flat)}
        for i, each in enumerate(self.matrices(network.anatomy)):
            if each.reduced:
                drawn = torch.randn(each.columns, each.rank, generator=source)
                kept[f"q.{i}"] = drawn.to(local.flat.dtype)
        return GradientMember(local, seat, PowerSgdReducer(self.matrices(network.anatomy), seat, kept))

    def messages(self, anatomy: Anatomy, seat: Seat, step: int) -> tuple[Message, ...]:
        """P and what is sent whole; then Q."""
        if seat.workers == 1:
            return ()
        matrices = self.matrices(anatomy)
        whole = sum(each.rows * each.columns for each in matrices if not each.reduced)
        left = sum(each.rows * each.rank for each in matrices if each.reduced)
        right = sum(each.columns * each.rank for each in matrices if each.reduced)
        first = Message(kind="all-reduce", bytes=FLOAT_BYTES * (whole + left))
        return (first, Message(kind="all-reduce", bytes=FLOAT_BYTES * right)) if right else (first,)

    def memory(self, anatomy: Anatomy, workers: int) -> Memory:
        """All weights, the error, and Q."""
        count = anatomy.elements
        kept = count + sum(each.columns * each.rank for each in self.matrices(anatomy) if each.reduced)
        return Memory(weights=count, gradients=count, moments=count, beside=kept if workers > 1 else 0)

    def compute(self, anatomy: Anatomy, workers: int) -> Compute:
        """The whole model, three products with each matrix, and P and Q made orthonormal (2 m r^2).

        Two of the products read the matrix; the third writes the gradient.
        """
        if workers == 1:
            return whole_compute(anatomy)
        reduced = [each for each in self.matrices(anatomy) if each.reduced]
        products = sum(6.0 * each.rows * each.columns * each.rank for each in reduced)
        bases = sum(2.0 * (each.rows + each.columns) * each.rank**2 for each in reduced)
        read = sum(2.0 * FLOAT_BYTES * each.rows * each.columns for each in reduced)
        return whole_compute(anatomy, products + bases, read)


def _shape(sizes: tuple[int, ...]) -> tuple[int, int]:
    """The rows and columns of a weight: of ways to part its dims in two, that with the smallest factors."""
    cuts = [(prod(sizes[:i]), prod(sizes[i:])) for i in range(1, max(len(sizes), 2))]
    return min(cuts, key=sum)


@dataclass(slots=True)
class PowerSgdReducer:
    """The mean gradient by its factors."""

    matrices: tuple[Matrix, ...]
    seat: Seat
    kept: "dict[str, torch.Tensor]"

    def reduce(self, gradient: "torch.Tensor", step: Step) -> "Talk[torch.Tensor]":
        """One step of power iteration for all matrices at once."""
        import torch

        given, n = gradient + self.kept["error"], self.seat.workers
        parts = [given[each.start : each.end].view(each.rows, each.columns) for each in self.matrices]
        sent = [
            part @ torch.linalg.qr(self.kept[f"q.{i}"]).Q if each.reduced else part
            for i, (each, part) in enumerate(zip(self.matrices, parts, strict=True))
        ]
        left = yield from _means(sent, n)
        basis = [
            torch.linalg.qr(part).Q if each.reduced else part
            for each, part in zip(self.matrices, left, strict=True)
        ]
        reduced = [i for i, each in enumerate(self.matrices) if each.reduced]
        right = (yield from _means([parts[i].T @ basis[i] for i in reduced], n)) if reduced else []
        self.kept |= {f"q.{i}": each for i, each in zip(reduced, right, strict=True)}
        found = torch.cat(
            [
                (basis[i] @ self.kept[f"q.{i}"].T if each.reduced else left[i]).reshape(-1)
                for i, each in enumerate(self.matrices)
            ]
        )
        self.kept["error"] = self._unsent(given, found)
        return found

    def _unsent(self, given: "torch.Tensor", found: "torch.Tensor") -> "torch.Tensor":
        """What this worker has that the common gradient has not; nothing of what was sent whole."""
        error = given - found
        for each in self.matrices:
            if not each.reduced:
                error[each.start : each.end] = 0.0
        return error


def _means(tensors: "list[torch.Tensor]", workers: int) -> "Talk[list[torch.Tensor]]":
    """The mean over all workers of each tensor, in one collective."""
    import torch

    total = yield Sum(torch.cat([each.reshape(-1) for each in tensors]))
    pieces = (total / workers).split_with_sizes([each.numel() for each in tensors])
    return [piece.view(each.shape) for piece, each in zip(pieces, tensors, strict=True)]
