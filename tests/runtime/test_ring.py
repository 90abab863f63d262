"""Ring context parallelism hands blocks of keys and values on, and gathers none."""

from collections.abc import Callable
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist

from tests.runtime.equality import RECIPE, SEQ, batch_of, kernels_of, plan_of
from tests.runtime.pool import Pool
from tests.runtime.small import build_small
from trainwright.program.lower import lower
from trainwright.program.reference import build_data
from trainwright.runtime import transfer
from trainwright.runtime.machine import build_setting
from trainwright.runtime.trainer import build_trainer, initialize
from trainwright.runtime.whole import build_initial
from trainwright.runtime.worker import build_worker


def messages(rank: int, model: str, text: str) -> tuple[int, int, int]:
    """Of one step: pairs of messages per microbatch and their elements, and tensors that were gathered."""
    graph = build_small(model)
    plan = plan_of(text, graph, 4)
    program = lower(build_setting(graph, 4, SEQ, "fp32"), plan)
    worker = build_worker(program, rank, kernels_of(graph), torch.device("cpu"))
    trainer = build_trainer(worker, RECIPE)
    initialize(worker, build_initial(graph))
    data = build_data(graph, program.instances, plan.batch, SEQ, plan.microbatches, 0)
    with (
        patch.object(dist, "batch_isend_irecv", wraps=dist.batch_isend_irecv) as sent,
        patch.object(transfer, "start_gather", wraps=transfer.start_gather) as gathered,
    ):
        trainer.take(batch_of(data))
    worker.groups.close()
    elements = sum(operation.tensor.numel() for call in sent.call_args_list for operation in call.args[0][:1])
    return sent.call_count // plan.microbatches, elements // plan.microbatches, gathered.call_count


@pytest.mark.parametrize(("text", "rounds"), [("cp4 ring mb2", 2), ("cp4 ring mb2 full", 3)])
def test_blocks_of_keys_and_values_are_handed_on(pool: Callable[[int], Pool], text: str, rounds: int) -> None:
    # Four members: 3 hops for each round of blocks, 4 for gradients, which end at home; two layers. A block
    # has 2 samples x 2 tokens x 2 heads x 2, of keys and of values. Recomputing goes round once more.
    hops = 2 * (3 * rounds + 4)
    for count, elements, gathered in pool(4).run(messages, "llama", text):
        assert (count, elements, gathered) == (hops, hops * 2 * (2 * 2 * 2 * 2), 0)


def test_what_is_to_be_gathered_first_is_gathered(pool: Callable[[int], Pool]) -> None:
    for count, _, gathered in pool(4).run(messages, "llama", "cp4 allgather mb2"):
        assert count == 0
        assert gathered > 0
