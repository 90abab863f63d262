"""Workers of every algorithm and compressor: what they ask for is what is stated, and they can be kept."""

import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.runtime import algorithms as tried  # noqa: E402
from trainwright.algorithm.message import payload  # noqa: E402
from trainwright.algorithm.protocol import Member, Talk  # noqa: E402
from trainwright.algorithm.registry import ALGORITHMS  # noqa: E402
from trainwright.algorithm.talk import Exchange, Gather, Sum, converse_together  # noqa: E402

UNBIASED = ("rand-k", "perm-k", "natural", "qsgd")
SHARE = "share=0.3 levels=3"
CASES = (
    "ddp",
    "local-sgd every=4",
    "local-sgd every=3 exact=4",
    "diloco every=4",
    "streaming-diloco every=5 fragments=3 delay=2",
    "streaming-diloco every=4 fragments=4 delay=3 mixed=1",
    "power-sgd rank=1",
    "power-sgd rank=50",  # everything is sent whole
    "ist every=1",
    "ist every=4",
    "ist every=4 coverage=0.01",
    "ist every=4 coverage=1",
    "ist every=3 coverage=0.6 warmup=2 finish=3",
    "ist every=3 finish=2 scale=share",
    "ist every=3 warmup=3 scale=none",
    "ist every=50 warmup=5 finish=6",  # no round at all
    "ist warmup=90",
    *(f"compressed by={by} {SHARE} feedback={told}" for by in (*UNBIASED, "top-k") for told in ("yes", "no")),
    *(f"ef21 by={by} {SHARE}" for by in (*UNBIASED, "top-k")),
    *(f"{name} by={by} {SHARE}" for name, by in product(("diana", "marina"), UNBIASED)),
)
_KINDS = {Sum: "all-reduce", Gather: "all-gather", Exchange: "all-to-all"}


class Heard:
    """Workers of one process, and the bytes that they pass to what would be collectives."""

    def __init__(self, text: str, network: str, workers: int, optimizer: str = "sgd") -> None:
        self.task, self.order = tried.task_of(network), tried.order_of(text, workers, optimizer)
        self.members = self.begin()
        self.bytes: Counter[str] = Counter()

    def begin(self) -> list[Member]:
        network, order = self.task.network, self.order
        start = network.initial(order.seed)
        seats = [order.seat(rank) for rank in range(order.workers)]
        return [order.algorithm.begin(network, order.learning, seat, start) for seat in seats]

    def step(self, number: int) -> list[float]:
        count = self.order.workers
        parts = [self.task.batch(number).part(rank, count) for rank in range(count)]
        talks = [each.step(number, part) for each, part in zip(self.members, parts, strict=True)]
        return converse_together([self.counted(talk) for talk in talks])

    def counted(self, talk: Talk[Any]) -> Talk[Any]:
        answer: Any = None
        while True:
            try:
                asked = talk.send(answer)
            except StopIteration as end:
                return end.value
            given = asked.parts if isinstance(asked, Exchange) else [asked.values]
            self.bytes[_KINDS[type(asked)]] += sum(each.numel() * each.element_size() for each in given)
            answer = yield asked


def whole(members: Sequence[Member]) -> dict[str, torch.Tensor]:
    return converse_together([member.whole() for member in members])[0]


def test_every_algorithm_and_compressor_is_among_them() -> None:
    assert {text.split()[0] for text in CASES} == set(ALGORITHMS)


@pytest.mark.parametrize(
    ("text", "network", "workers"),
    [(text, "mlp", 3) for text in CASES]
    + [(t, *where) for where in (("residual", 5), ("transformer", 2)) for t in CASES if t.startswith("ist")],
)
def test_workers_ask_in_every_step_for_what_is_stated(text: str, network: str, workers: int) -> None:
    heard = Heard(text, network, workers)
    for number in range(tried.STEPS):
        heard.bytes.clear()
        heard.step(number)
        order = heard.order
        stated = order.algorithm.messages(heard.task.network.anatomy, order.seat(0), number)
        expected = {kind: workers * size for kind, size in payload(stated).items()}
        assert dict(heard.bytes) == pytest.approx(expected, rel=1e-12)  # a mean over workers is a fraction


def test_differences_begin_with_a_whole_gradient_whenever_a_worker_begins() -> None:
    heard = Heard("marina by=rand-k share=0.3 whole=0.01", "mlp", 3)
    network, order = heard.task.network, heard.order
    seats = [replace(order.seat(rank), first=5) for rank in range(3)]
    start = network.initial(0)
    heard.members = [order.algorithm.begin(network, order.learning, seat, start) for seat in seats]
    for number in (5, 6):
        heard.bytes.clear()
        heard.step(number)
        stated = payload(order.algorithm.messages(network.anatomy, seats[0], number))
        assert dict(heard.bytes) == {kind: 3 * size for kind, size in stated.items()}
        assert list(stated) == ["all-reduce" if number == 5 else "all-gather"]


@pytest.mark.parametrize("text", CASES)
def test_a_lone_worker_remembers_weights_and_optimizer_alone(text: str) -> None:
    heard = Heard(text, "mlp", 1)
    heard.step(0)
    heard.step(1)
    (member,) = heard.members
    vectors = [each.numel() for each in tensors(member.kept()) if each.numel() > 1]
    assert sum(vectors) <= 2 * heard.task.network.anatomy.elements  # with one moment


def tensors(tree: Any) -> list[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        return [tree]
    branches = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list | tuple) else ()
    return [each for branch in branches for each in tensors(branch)]


@pytest.mark.parametrize("text", CASES)
def test_a_run_goes_on_from_what_its_workers_remember_after_any_step(text: str) -> None:
    calm = Heard(text, "mlp", 3, "adamw")
    losses = []
    for number in range(tried.STEPS):
        losses.append(calm.step(number))
    stopped = Heard(text, "mlp", 3, "adamw")
    for number in range(tried.STEPS):
        assert stopped.step(number) == losses[number]
        kept = [written(member.kept()) for member in stopped.members]
        stopped.members = stopped.begin()
        for member, each in zip(stopped.members, kept, strict=True):
            member.take_over(each)
    expected = whole(calm.members)
    for name, value in whole(stopped.members).items():
        assert torch.equal(value, expected[name]), name


@pytest.mark.parametrize(
    "text", ["local-sgd every=4", "diloco every=4", "ist every=4", "ist every=5 coverage=0.6"]
)
def test_all_workers_tell_the_same_whole_model_after_any_step(text: str) -> None:
    heard = Heard(text, "transformer", 2, "adamw")  # whose embeddings and norms are shared
    for number in range(tried.STEPS):
        heard.step(number)
        one, other = converse_together([member.whole() for member in heard.members])
        assert all(torch.equal(one[name], other[name]) for name in one)


# Not rounds of one step, which hold no slice between steps, nor a cut that is none: it has the shared weights
# twice when a round has ended.
@pytest.mark.parametrize("text", [t for t in CASES if "every=1" not in t and "coverage=1" not in t])
def test_workers_hold_between_steps_what_is_stated(text: str) -> None:
    heard = Heard(text, "mlp", 4, "adamw")
    for number in range(8):
        heard.step(number)
        held = [sum(numbers(member.kept()).values()) for member in heard.members]
        stated = heard.order.algorithm.memory(heard.task.network.anatomy, 4)
        most = stated.weights + 2 * stated.moments + stated.beside  # two moments of AdamW
        assert sum(held) / 4 <= most * (1 + 1e-12)
        if "ist" not in text or number in (0, 1):  # which holds less between rounds and beside whole steps
            assert sum(held) / 4 == pytest.approx(most) or ("finish" in text and "warmup" not in text)


def numbers(kept: object) -> dict[int, int]:
    """How many numbers are in each tensor of what a worker remembers, but its last samples."""
    if isinstance(kept, torch.Tensor):
        return {kept.data_ptr(): kept.numel()} if kept.numel() > 1 else {}
    if isinstance(kept, dict):
        kept = [value for name, value in kept.items() if name != "last"]
    found: dict[int, int] = {}
    for each in kept if isinstance(kept, list | tuple) else ():
        found |= numbers(each)
    return found


def written(kept: dict[str, Any]) -> dict[str, Any]:
    """It as a file of a checkpoint gives it back."""
    file = io.BytesIO()
    torch.save(kept, file)
    file.seek(0)
    found: dict[str, Any] = torch.load(file, weights_only=True)
    return found
