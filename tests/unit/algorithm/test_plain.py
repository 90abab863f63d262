"""With one worker every algorithm is plain training."""

import pytest

torch = pytest.importorskip("torch")

from tests.runtime import algorithms as tried  # noqa: E402
from trainwright.algorithm.charge import all_messages  # noqa: E402
from trainwright.algorithm.registry import ALGORITHMS  # noqa: E402
from trainwright.algorithm.train import Task, train  # noqa: E402


def plain(task: Task, optimizer: str) -> dict[str, torch.Tensor]:
    """The weights after a loop as anyone would write it."""
    values = {name: each.clone().requires_grad_() for name, each in task.network.initial(3).items()}
    chosen = (
        torch.optim.SGD(values.values(), lr=0.05, momentum=0.9)
        if optimizer == "sgd"
        else torch.optim.AdamW(values.values(), lr=0.01, betas=(0.9, 0.95), weight_decay=0.0)
    )
    for step in range(tried.STEPS):
        chosen.zero_grad()
        task.network.loss(values, task.batch(step)).backward()
        chosen.step()
    return {name: each.detach() for name, each in values.items()}


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_one_worker_trains_as_if_there_were_no_algorithm(name: str, optimizer: str) -> None:
    task, order = tried.task_of("mlp"), tried.order_of(name, 1, optimizer)
    found = train(task, order)
    for key, values in plain(task, optimizer).items():
        assert torch.equal(found.values[key], values), key
    assert all_messages(order.algorithm, task.network.anatomy, order.seat(0)) == ()
