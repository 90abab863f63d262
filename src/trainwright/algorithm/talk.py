"""What workers ask of each other, and how it is carried out: among processes, or in this one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from trainwright.algorithm.protocol import Talk

if TYPE_CHECKING:
    import torch

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum over all workers, in place."""

    values: "torch.Tensor"

    def perform(self) -> "torch.Tensor":
        """The answer among processes."""
        import torch.distributed as dist

        dist.all_reduce(self.values)
        return self.values

    @staticmethod
    def answer(asked: "Sequence[Sum]") -> "list[torch.Tensor]":
        """The answers among members of this process."""
        import torch

        total = torch.stack([each.values for each in asked]).sum(0)
        for each in asked:
            each.values.copy_(total)
        return [each.values for each in asked]


@dataclass(frozen=True, slots=True)
class Gather:
    """The values of every worker, all of one size, at every worker, as `read` makes sense of them.

    It does so once for all members of a process, so that none may change what it is answered.
    """

    values: "torch.Tensor"
    read: "Callable[[list[torch.Tensor]], Any]"

    def perform(self) -> Any:
        """The answer among processes."""
        import torch
        import torch.distributed as dist

        found = [torch.empty_like(self.values) for _ in range(dist.get_world_size())]
        dist.all_gather(found, self.values)
        return self.read(found)

    @staticmethod
    def answer(asked: "Sequence[Gather]") -> list[Any]:
        """The answers among members of this process."""
        return [asked[0].read([each.values for each in asked])] * len(asked)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A part for every worker; the answer has what every worker had for this one, of these sizes."""

    parts: "Sequence[torch.Tensor]"
    sizes: Sequence[int]

    def perform(self) -> "list[torch.Tensor]":
        """The answer among processes."""
        import torch
        import torch.distributed as dist

        given = torch.cat(list(self.parts))
        found = given.new_empty(sum(self.sizes))
        dist.all_to_all_single(found, given, list(self.sizes), [len(each) for each in self.parts])
        return list(found.split_with_sizes(list(self.sizes)))

    @staticmethod
    def answer(asked: "Sequence[Exchange]") -> "list[list[torch.Tensor]]":
        """The answers among members of this process."""
        return [[each.parts[rank].clone() for each in asked] for rank in range(len(asked))]


def converse(talk: Talk[Result]) -> Result:
    """What a worker's talk comes to, with the other processes of the group."""
    answer: Any = None
    while True:
        try:
            request = talk.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        answer = request.perform()


def converse_together(talks: Sequence[Talk[Result]]) -> list[Result]:
    """What the talks of all workers come to, in this process; all ask the same kind of thing in turn."""
    answers: Sequence[Any] = [None] * len(talks)
    while True:
        asked, results = [], []
        for talk, answer in zip(talks, answers, strict=True):
            try:
                asked.append(talk.send(answer))
            except StopIteration as end:
                results.append(end.value)
        if results:
            assert not asked, "workers disagree on when their talk ends"
            return results
        assert len({type(each) for each in asked}) == 1, "workers ask for different things"
        answers = type(asked[0]).answer(asked)
