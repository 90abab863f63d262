"""Workers: what is asked twice is answered once, and what nobody waits for is dropped."""

import asyncio
import gzip
import json

import pytest

from trainwright.web.settings import Settings
from trainwright.web.workers import Busy, Question, Workers


def plan(model: str, *more: str) -> Question:
    return ("plan", ["plan", model, "h100:8", *more], {})


def test_a_question_under_way_is_shared_and_one_that_is_left_is_dropped() -> None:
    async def work() -> None:
        workers = Workers(Settings(workers=1, most_waiting=2))
        workers.start()
        try:
            first = asyncio.ensure_future(workers.ask(plan("llama2-7b", "--pareto")))
            twin = asyncio.ensure_future(workers.ask(plan("llama2-7b", "--pareto")))
            left = asyncio.ensure_future(workers.ask(plan("gpt2")))
            await asyncio.sleep(0.1)
            with pytest.raises(Busy):
                await workers.ask(plan("gpt2-xl"))
            left.cancel()  # its asker goes; the worker is still with the first
            await asyncio.sleep(0.1)
            asked = asyncio.ensure_future(workers.ask(plan("gpt2-xl")))  # so there is room again
            assert await first == await twin
            status, body = await asked
            assert (status, len(json.loads(gzip.decompress(body))["plans"])) == (200, 10)
            assert sum(each.answered for each in workers._all) == 2
        finally:
            workers.stop()

    asyncio.run(work())
