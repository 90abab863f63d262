from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.runtime.pool import Pool, open_pool


@pytest.fixture(scope="session")
def pool() -> Iterator[Callable[[int], Pool]]:
    """Pools of processes by their size; each is started when it is first asked for, or after it broke."""
    with ExitStack() as stack:
        made: dict[int, Pool] = {}

        def of(count: int) -> Pool:
            if count not in made or made[count].broken or not made[count].alive:
                made[count] = stack.enter_context(open_pool(count))
            return made[count]

        yield of
