"""Workers: what is asked twice is answered once, and what nobody waits for is dropped."""

import asyncio
import gzip
import json
import os
import signal
import sys

import pytest

from trainwright.api.plan_request import PlanRequest
from trainwright.web.settings import Settings
from trainwright.web.workers import Busy, Question, TooLong, Workers


def plan(model: str, *, pareto: bool = False) -> Question:
    return ("plan", PlanRequest(model, "h100:8", pareto=pareto))


def test_a_question_under_way_is_shared_and_one_that_is_left_is_dropped() -> None:
    async def work() -> None:
        workers = Workers(Settings(workers=1, most_waiting=2))
        workers.start()
        try:
            first = asyncio.ensure_future(workers.ask(plan("llama2-7b", pareto=True)))
            twin = asyncio.ensure_future(workers.ask(plan("llama2-7b", pareto=True)))
            left = asyncio.ensure_future(workers.ask(plan("gpt2"), ticket="left"))
            await asyncio.sleep(0.1)
            assert (workers.place("left"), workers.place("nobody's")) == (1, 0)
            with pytest.raises(Busy):
                await workers.ask(plan("gpt2-xl"))
            left.cancel()  # its asker goes; the worker is still with the first
            await asyncio.sleep(0.1)
            assert workers.place("left") == 0
            asked = asyncio.ensure_future(workers.ask(plan("gpt2-xl")))  # so there is room again
            assert await first == await twin
            status, body = await asked
            assert (status, len(json.loads(gzip.decompress(body))["plans"])) == (200, 10)
            assert sum(each.answered for each in workers._all) == 2
        finally:
            workers.stop()

    asyncio.run(work())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs the processor time of a process")
def test_work_counts_against_a_question_and_waiting_for_a_core_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trainwright.web.workers._PATIENCE", 100.0)  # this machine may be busy indeed

    async def work() -> None:
        workers = Workers(Settings(workers=1, answer_s=2.0))
        workers.start()
        try:
            await workers.ask(plan("gpt2"))
            (worker,) = workers._all
            pid = worker.process.pid
            assert pid
            os.kill(pid, signal.SIGSTOP)  # as if others had all cores
            asyncio.get_running_loop().call_later(3.0, os.kill, pid, signal.SIGCONT)
            status, _ = await workers.ask(plan("gpt2-xl"))
            assert status == 200
            with pytest.raises(TooLong):
                await workers.ask(("plan", PlanRequest("deepseek-v3", "h100:2048", pareto=True)))
            assert workers._all != [worker]
        finally:
            workers.stop()

    asyncio.run(work())
