"""Constraints as text: `capacity <= 300e9 and devices * price < 5000`, over axes and result columns.

A small language, read as Python reads it and then checked node by node: numbers, text, names, arithmetic,
comparisons, and, or, not, in, and min, max, abs, log2, sqrt, floor, ceil. Nothing else is understood, so
nothing else can happen. Numbers may be text with a unit: `capacity < "300 GB"`.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainwright.errors import BadInput, UnknownName
from trainwright.units import parse_quantity

Columns = Mapping[str, NDArray[Any]]

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: np.power,
}  # fmt: skip
_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
    ast.In: lambda a, b: np.isin(a, b), ast.NotIn: lambda a, b: ~np.isin(a, b),
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": lambda *each: reduce(np.minimum, each), "max": lambda *each: reduce(np.maximum, each),
    "abs": np.abs, "log2": np.log2, "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil,
}  # fmt: skip
_REMEDY = "use numbers, names of columns, + - * / // % **, comparisons, and, or, not, in, min, max, log2"
_LONGEST, _DEEPEST = 2000, 50
_QUANTITIES = ("bytes", "bytes/s", "flops/s", "s", "W", "$/h")


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A condition on columns, by its text."""

    text: str

    def __post_init__(self) -> None:
        _check(_tree(self.text), self.text, 0)

    @property
    def names(self) -> frozenset[str]:
        """The columns that it asks for."""
        nodes = ast.walk(_tree(self.text))
        return frozenset(n.id for n in nodes if isinstance(n, ast.Name) and n.id not in _FUNCTIONS)

    def holds(self, columns: Columns) -> NDArray[np.bool_]:
        """For each row, whether the condition holds; not where a number is missing."""
        with np.errstate(all="ignore"):
            return np.asarray(_value(_tree(self.text), columns, self.text), dtype=bool)

    def check_names(self, known: "list[str]") -> None:
        """Raise for a name that is no column."""
        for name in sorted(self.names):
            if name not in known:
                raise UnknownName(f'constraint "{self.text}": name', name, known)


def _tree(text: str) -> ast.expr:
    if len(text) > _LONGEST:
        raise BadInput("constraint", text, f"is longer than {_LONGEST} characters", "make several of it")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise BadInput("constraint", text, "is no expression", _REMEDY) from None


def _check(node: ast.expr, text: str, depth: int) -> None:
    """Raise for anything that is not of the language."""
    fine = (
        (isinstance(node, ast.Constant) and isinstance(node.value, int | float | str))
        or isinstance(node, ast.Name | ast.Tuple | ast.List | ast.BoolOp)
        or (isinstance(node, ast.BinOp) and type(node.op) in _BINARY)
        or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub | ast.UAdd))
        or (isinstance(node, ast.Compare) and all(type(op) in _COMPARED for op in node.ops))
        or (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in _FUNCTIONS
            and node.args
            and not node.keywords
        )
    )
    if not fine or depth > _DEEPEST:
        raise BadInput("constraint", text, f'"{ast.unparse(node)[:60]}" is not understood', _REMEDY)
    children = node.args if isinstance(node, ast.Call) else ast.iter_child_nodes(node)
    for child in children:
        if isinstance(child, ast.expr):
            _check(child, text, depth + 1)


def _value(node: ast.expr, columns: Columns, text: str) -> Any:
    def of(child: ast.expr) -> Any:
        return _value(child, columns, text)

    match node:
        case ast.Constant():
            return _constant(node.value)
        case ast.Name():
            return columns[node.id]
        case ast.Tuple() | ast.List():
            return [of(each) for each in node.elts]
        case ast.BinOp():
            return _safely(text, lambda: _BINARY[type(node.op)](of(node.left), of(node.right)))
        case ast.UnaryOp(op=ast.Not()):
            return np.logical_not(of(node.operand))
        case ast.UnaryOp():
            return _safely(
                text, lambda: -of(node.operand) if isinstance(node.op, ast.USub) else of(node.operand)
            )
        case ast.BoolOp():
            join = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
            return reduce(join, [of(each) for each in node.values])
        case ast.Compare():
            sides = [of(node.left), *(of(each) for each in node.comparators)]
            pairs = zip(node.ops, sides[:-1], sides[1:], strict=True)
            parts = [_safely(text, lambda o=op, a=a, b=b: _COMPARED[type(o)](a, b)) for op, a, b in pairs]  # type: ignore[misc]
            return reduce(np.logical_and, parts)
        case ast.Call(func=ast.Name(id=name)):
            return _safely(text, lambda: _FUNCTIONS[name](*(of(each) for each in node.args)))
    raise AssertionError(node)


def _safely(text: str, compute: Callable[[], Any]) -> Any:
    try:
        return compute()
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        raise BadInput(
            "constraint", text, "compares or computes with text and numbers", "compare like with like"
        ) from None


def _constant(value: object) -> object:
    """A number, text, or the number that a text with a unit means."""
    if isinstance(value, str) and value[:1].isdigit():
        for unit in _QUANTITIES:
            try:
                return parse_quantity(value, unit)
            except BadInput:
                continue
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
