"""Messages between pipeline stages: what one stage sends is what the other has room for.

Both stages are run in this process, one after another. A message that is received holds zeros, so numbers
mean nothing here: `tests/runtime/test_gradient_rules.py` compares them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from tests.runtime.loss_training import CASES, build_microbatch, traced_case  # noqa: E402
from trainwright.plan.expand import expand  # noqa: E402
from trainwright.plan.strategy import parse_strategy  # noqa: E402
from trainwright.program.lower import lower  # noqa: E402
from trainwright.runtime.machine import build_setting  # noqa: E402
from trainwright.runtime.trainer import Recipe, build_trainer  # noqa: E402
from trainwright.runtime.worker import build_worker  # noqa: E402

Message = tuple[int, "torch.dtype", tuple[int, ...]]  # tag, dtype, shape


@dataclass(slots=True)
class Operation:
    """Stands for `dist.P2POp`, which needs a process group."""

    op: Callable[..., object]
    tensor: "torch.Tensor"
    peer: int
    tag: int


def messages(name: str, stage: int, monkeypatch: pytest.MonkeyPatch) -> tuple[set[Message], set[Message]]:
    """What a stage of two sends and receives in a step, forward and backward."""
    sent: set[Message] = set()
    received: set[Message] = set()

    def start(operations: Sequence[Operation]) -> list[object]:
        for each in operations:
            listed = sent if each.op is dist.isend else received
            listed.add((each.tag, each.tensor.dtype, tuple(each.tensor.shape)))
            if each.op is dist.irecv:
                each.tensor.zero_()
        return []

    monkeypatch.setattr(dist, "P2POp", Operation)
    monkeypatch.setattr(dist, "batch_isend_irecv", start)
    traced = traced_case(name)[1]
    plan = replace(expand(parse_strategy("pp2 mb2 1f1b"), traced.graph, 4), precision="fp32")
    program = lower(build_setting(traced.graph, 2, traced.seq, "fp32"), plan)
    trainer = build_trainer(build_worker(program, stage, traced.kernels, torch.device("cpu")), Recipe())
    batch = [build_microbatch(traced, CASES[name].inputs(2, seed)) for seed in range(2)]
    trainer.backward(batch)
    return sent, received


@pytest.mark.parametrize(
    ("name", "forward", "backward"),
    [
        ("complex_stream", {torch.complex64}, {torch.complex64}),
        ("double_stream", {torch.float64}, {torch.float64}),
        ("double_signs", {torch.float32, torch.float64}, {torch.float32, torch.float64}),
        ("shared_indices", {torch.float32, torch.int64, torch.bool}, {torch.float32}),
        ("complex_rotary", {torch.float32}, {torch.float32}),
    ],
)
def test_a_message_has_the_dtype_of_its_value_on_both_sides(
    name: str,
    forward: "set[torch.dtype]",
    backward: "set[torch.dtype]",
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (down, up), (other_up, other_down) = (messages(name, stage, monkeypatch) for stage in range(2))
    assert {dtype for _, dtype, _ in down} == forward
    assert {dtype for _, dtype, _ in up} == backward
    assert down == other_down
    assert up == other_up
