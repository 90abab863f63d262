"""Constraints are a small language, and nothing but that."""

import numpy as np
import pytest

from trainwright.errors import BadInput, UnknownName
from trainwright.sweep.constraints import Constraint

COLUMNS = {
    "a": np.array([1.0, 2.0, 3.0]), "b": np.array([3, 2, 1]), "name": np.array(["x", "y", "z"]),
    "gone": np.array([np.nan, 1.0, 2.0]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("a < 2.5", [True, True, False]),
        ("1 < a <= 3", [False, True, True]),
        ("a * b == 3", [True, False, True]),
        ("a + b ** 2 > 5 or name == 'z'", [True, True, True]),
        ("not (a > 1 and b < 3)", [True, False, False]),
        ("name in ['x', 'z']", [True, False, True]),
        ("name not in ('x', 'z')", [False, True, False]),
        ("min(a, b) >= 2", [False, True, False]),
        ("max(a, b, 2.5) == 3 and log2(a) >= 0", [True, False, True]),
        ("-a < -1.5", [False, True, True]),
        ("a * 1e9 < '2 GB'", [True, False, False]),
        ("gone < 5", [False, True, True]),
        ("a / 0 > 5", [True, True, True]),
    ],
)
def test_a_constraint_is_read_as_python_reads_it(text: str, held: list[bool]) -> None:
    assert Constraint(text=text).holds(COLUMNS).tolist() == held


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')", "a.__class__", "(lambda: 1)()", "[x for x in a]", "a if b else 1",
        "a[0]",
        "f'{a}'", "open('x')", "a := 1", "min(*a)", "min(a, key=b)", "a @ b", "a << 2", "None", "b'x'",
        "{1: 2}", "", "a <", "a; b", "min()", "(" * 60 + "a" + ")" * 60 + "<" * 2,
    ],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="constraint"):
        Constraint(text=text)


def test_towers_of_powers_end_at_infinity_instead_of_never() -> None:
    assert Constraint(text="9 ** 9 ** 9 ** 9 > a").holds(COLUMNS).all()


def test_text_and_numbers_are_not_compared() -> None:
    with pytest.raises(BadInput, match="compares or computes with text and numbers"):
        Constraint(text="name + 1 < 2").holds(COLUMNS)


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match='"capacty": no such name; did you mean "capacity"'):
        Constraint(text="capacty < 3").check_names(["capacity", "step_s"])
