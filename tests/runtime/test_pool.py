import os
import signal

import pytest

pytest.importorskip("torch", reason="needs torch")

from tests.runtime.pool import open_pool


def test_a_pool_knows_at_once_that_one_of_its_processes_was_killed() -> None:
    with open_pool(2) as pool:
        assert pool.alive
        os.kill(pool.processes[1].pid or 0, signal.SIGKILL)
        assert not pool.alive


def test_a_pool_is_opened_after_the_processes_of_another_were_killed() -> None:
    for _ in range(2):
        with open_pool(1) as pool:
            assert pool.alive
            for process in pool.processes:
                os.kill(process.pid or 0, signal.SIGKILL)
