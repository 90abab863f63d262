"""How much Python does: calls counted, which no other work on the machine changes."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

Result = TypeVar("Result")


def count_calls(run: Callable[[], Result]) -> tuple[int, Result]:
    """How many functions are called until one returns, and what it returns."""
    count = 0

    def seen(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        result = run()
    finally:
        sys.setprofile(before)
    return count, result
