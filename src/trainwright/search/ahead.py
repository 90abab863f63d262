"""Work done ahead of its use, on all cores, in bounded memory."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def work_ahead(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[tuple[Item, Result]]:
    """Each item with its result, in order; threads suffice, since numpy computes outside of Python's lock."""
    workers = min(os.cpu_count() or 1, 8)
    pending: deque[tuple[Item, Future[Result]]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for item in items:
            pending.append((item, pool.submit(function, item)))
            if len(pending) > workers:
                done, future = pending.popleft()
                yield done, future.result()
        while pending:
            done, future = pending.popleft()
            yield done, future.result()
