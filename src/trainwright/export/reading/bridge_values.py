"""What a Python function sets on a configuration of Megatron-Bridge, read without running it."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from trainwright.errors import BadInput
from trainwright.export.reading.python_text import parse_module
from trainwright.export.reading.torchtitan_registry import UnresolvedValue

_SECTIONS = ("model", "train", "ddp", "optimizer", "dist", "comm_overlap", "mixed_precision")
_MOST_LISTED = 20
_DTYPE = re.compile(r"torch\.(float32|bfloat16|float16|uint8)")  # stated as they are


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeValues:
    """Values by section and field; `base` is the recipe that sets what the text does not."""

    values: Mapping[str, object]
    environment: Mapping[str, str] = field(default_factory=dict)
    base: str = ""
    calls: tuple[str, ...] = ()  # that may change the configuration and are not read


def is_bridge(text: str) -> bool:
    """Whether a Python text sets fields of a Megatron-Bridge configuration."""
    return ".model." in text and "_parallel_size" in text


def read_values(text: str, source: str, function: str) -> BridgeValues:
    """The values that one function sets: the one that is named, or the only one."""
    try:
        tree = parse_module(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise BadInput(source, "text", "is no Python", "name a configuration of Megatron-Bridge") from None
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    found = [name for name, node in functions.items() if _sets_fields(node)]
    name = function or (found[0] if len(found) == 1 else "")
    if name not in functions:
        shown = ", ".join(found[:_MOST_LISTED]) or "none"
        rule = "is not there" if function else f"has {len(found)} functions that set a configuration"
        raise BadInput(f"{source}: function", function, rule, f"name one as FILE.py:FUNCTION, of {shown}")
    reader = _BridgeReader(source, functions[name])
    reader.read()
    return BridgeValues(
        values=reader.values, environment=reader.environment, base=reader.base, calls=tuple(reader.calls)
    )


def _sets_fields(node: ast.FunctionDef) -> bool:
    """Whether a function assigns to fields of sections."""
    for each in ast.walk(node):
        if isinstance(each, ast.Assign):
            for target in each.targets:
                names = _names(target)
                if len(names) == 3 and names[1] in _SECTIONS:
                    return True
    return False


def _names(node: ast.expr) -> list[str]:
    """The names of `a.b.c`, none for another expression."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return [node.id, *names] if isinstance(node, ast.Name) else []


class _BridgeReader:
    def __init__(self, source: str, function: ast.FunctionDef) -> None:
        self.source, self.function = source, function
        self.values: dict[str, object] = {}
        self.environment: dict[str, str] = {}
        self.base = ""
        self.calls: list[str] = []
        self.sections: dict[str, str] = {}  # of names that stand for a section
        arguments = function.args.args
        self.config = arguments[0].arg if arguments else ""

    def read(self) -> None:
        """Take over what the function sets, in its order."""
        self._block(self.function.body)

    def _block(self, body: list[ast.stmt]) -> None:
        for node in body:
            self._statement(node)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                for target, value in zip(targets, values, strict=False):
                    self._set(target, value)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._set(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._set(target, value)
            case ast.If(
                test=ast.Compare(ops=[ast.IsNot()]) | ast.Call(func=ast.Name(id="hasattr")), orelse=[]
            ):
                self._block(node.body)  # a section that the recipe may have
            case ast.For(target=ast.Name(id=name), iter=ast.Tuple(elts=parts)):
                for part in parts:
                    names = _names(part)
                    if len(names) == 2:
                        self.sections[name] = names[1]
                        self._block(node.body)
            case ast.Expr(value=ast.Call() as call):
                self._call(call)
            case ast.If() | ast.For() | ast.While() | ast.With() | ast.Try():
                if any(isinstance(each, ast.Assign) for each in ast.walk(node)):
                    rule = "sets the configuration under a condition, which is not read"
                    raise BadInput(f"{self.source}: line {node.lineno}", "", rule, "write it out")

    def _call(self, call: ast.Call) -> None:
        given = [ast.unparse(each) for each in call.args]
        if any(each.split(".")[0] == self.config for each in given if self.config):
            self.calls.append(ast.unparse(call.func))

    def _set(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._whole(target.id, value)
            return
        if isinstance(target, ast.Subscript):
            self._item(target, value)
            return
        names = _names(target)
        if len(names) == 2 and names[0] in self.sections:
            names = [self.config, self.sections[names[0]], names[1]]
        if not names or names[0] != self.config:
            return
        if names[1:] == ["mixed_precision"] and isinstance(value, ast.Call) and len(value.args) == 1:
            self.values["mixed_precision"] = _value(value.args[0])  # get_mixed_precision_config
        elif len(names) == 2:
            self.values.update(self._section(names[1], value))
        else:
            self.values[".".join(names[1:])] = _value(value)

    def _whole(self, name: str, value: ast.expr) -> None:
        """`cfg = recipe(...)`: what the recipe is called with."""
        if isinstance(value, ast.Call) and (not self.config or name == self.config or name == "cfg"):
            self.config, self.base = name, ast.unparse(value.func).rpartition(".")[2]
            for each in value.keywords:
                if each.arg:
                    section = _RECIPE_SECTIONS.get(each.arg, "model")
                    key = section if section == "mixed_precision" else f"{section}.{each.arg}"
                    self.values[key] = _value(each.value)

    def _item(self, target: ast.Subscript, value: ast.expr) -> None:
        found = _value(value)
        if _names(target.value) == [self.config, "env_vars"] and isinstance(target.slice, ast.Constant):
            self.environment[str(target.slice.value)] = str(found)

    def _section(self, section: str, value: ast.expr) -> Iterator[tuple[str, object]]:
        """A whole section: its keywords, or one value."""
        if isinstance(value, ast.Call) and value.keywords and not value.args:
            for each in value.keywords:
                if each.arg:
                    yield f"{section}.{each.arg}", _value(each.value)
        else:
            yield section, _value(value)


_RECIPE_SECTIONS = {
    "micro_batch_size": "train", "global_batch_size": "train", "train_iters": "train",
    "precision_config": "mixed_precision",
}  # fmt: skip


def _value(value: ast.expr) -> object:
    try:
        return ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        text = ast.unparse(value)
        return text if _DTYPE.fullmatch(text) else UnresolvedValue(text=text[:80])
