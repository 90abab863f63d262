"""One function of a Python file of torchtitan's configurations, read without running it."""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass

from trainwright.errors import BadInput
from trainwright.export.reading.python_text import parse_module

_SECTION_CLASSES = {
    "ParallelismConfig": "parallelism", "TrainingConfig": "training", "CompileConfig": "compile",
    "DebugConfig": "debug", "CommConfig": "comm",
}  # fmt: skip
_POLICIES = {"SelectiveAC": "selective", "FullAC": "full", "None": "none"}
_CONVERTERS = {"Float8": "float8", "MXFP8": "mxfp8", "NVFP4": "nvfp4"}
_READ_SECTIONS = ("training", "parallelism")
_MOST_LISTED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class UnresolvedValue:
    """An expression that is not a plain value."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """Settings by dotted name; `base` is a function of another file that sets what this one does not."""

    values: Mapping[str, object]
    base: str = ""


def read_registry(text: str, source: str, function: str) -> RegistrySettings:
    """The settings of one function: the one that is named, or the only one there is."""
    try:
        tree = parse_module(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise BadInput(source, "text", "is no Python", "name torchtitan's configuration") from None
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    builders = [name for name, node in functions.items() if _builds(node, functions)]
    name = function or (builders[0] if len(builders) == 1 else "")
    if not builders:
        raise BadInput(source, "text", "has no function that builds a configuration", "name such a file")
    if name not in functions:
        shown = ", ".join(builders[:_MOST_LISTED]) + (", …" if len(builders) > _MOST_LISTED else "")
        if function:
            raise BadInput(f"{source}: function", function, "is not there", f"name one of {shown}")
        rule = f"has {len(builders)} functions that build configurations"
        raise BadInput(source, "text", rule, f"name one as FILE.py:FUNCTION, of {shown}")
    reader = _Reader(tree, functions, source)
    reader.read(name, 0)
    values = {"model.module": found} if (found := _module(tree, source)) else {}
    return RegistrySettings(values=values | reader.values | {"model.function": name}, base=reader.base)


def _builds(node: ast.FunctionDef, functions: Mapping[str, ast.FunctionDef]) -> bool:
    """Whether a function returns a configuration."""
    if node.name.startswith("_"):
        return False
    if node.returns is not None:
        return "Config" in ast.unparse(node.returns)
    calls = [ast.unparse(each.func) for each in ast.walk(node) if isinstance(each, ast.Call)]
    returns = any(isinstance(each, ast.Return) and each.value is not None for each in ast.walk(node))
    return returns and any(call.endswith("Config") or call in functions for call in calls)


def _module(tree: ast.Module, source: str) -> str:
    """The family of models that a file is of, by what it imports or where it is."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(each.name == "model_registry" for each in node.names):
            imported = re.match(r"torchtitan\.(?:models|experiments)\.(\w+)", node.module or "")
            if imported:
                return imported[1]
    found = re.search(r"(?:models|experiments)[/\\](\w+)[/\\]", source)
    return found[1] if found else ""


class _Reader:
    def __init__(self, tree: ast.Module, functions: Mapping[str, ast.FunctionDef], source: str) -> None:
        self.functions, self.source = functions, source
        self.values: dict[str, object] = {}
        self.base = ""
        self.constants = {
            node.targets[0].id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Constant)
        }

    def read(self, name: str, depth: int) -> None:
        """Take over what a function sets, in its order."""
        if depth > 10:
            raise BadInput(f"{self.source}: function", name, "calls itself", "name another")
        for node in self.functions[name].body:
            self._statement(node, depth)

    def _statement(self, node: ast.stmt, depth: int) -> None:
        match node:
            case (
                ast.Assign(targets=[ast.Name()], value=ast.Call() as call)
                | ast.Return(value=ast.Call() as call)
            ):
                self._whole(call, depth)
            case ast.AnnAssign(target=ast.Name(), value=ast.Call() as call):
                self._whole(call, depth)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=value)):
                self.constants[name] = value
            case ast.Assign(targets=[ast.Attribute() as target], value=value):
                self._set(target, value)
            case ast.If() | ast.For() | ast.While() | ast.With() | ast.Try():
                if any(isinstance(each, ast.Attribute | ast.Return) for each in ast.walk(node)):
                    rule = "sets its configuration under a condition, which is not read"
                    raise BadInput(f"{self.source}: line {node.lineno}", "", rule, "write it out")

    def _whole(self, call: ast.Call, depth: int) -> None:
        """A call that gives a whole configuration."""
        name = ast.unparse(call.func)
        if name in self.functions:
            self.read(name, depth + 1)
        elif name.endswith("Config") and name not in _SECTION_CLASSES:
            for keyword in call.keywords:
                if keyword.arg:
                    self._section(keyword.arg, keyword.value)
                else:
                    raise self._unread("**", keyword.value)
        elif re.fullmatch(r"[a-z_][\w.]*", name) and not call.args:
            self.base = name.rpartition(".")[2]

    def _set(self, target: ast.Attribute, value: ast.expr) -> None:
        """`config.section = …` or `config.section.field = …`."""
        names = ast.unparse(target).split(".")
        if len(names) == 2:
            self._section(names[1], value)
        elif names[1:] == ["optimizer", "param_groups"]:
            self._optimizer(value)
        else:
            self.values[".".join(names[1:])] = self._value(value)

    def _section(self, section: str, value: ast.expr) -> None:
        if section == "activation_checkpoint":
            text = ast.unparse(value)
            self.values["activation_checkpoint.mode"] = next(
                (ours for theirs, ours in _POLICIES.items() if text.startswith(theirs)), text
            )
        elif section in ("model_spec", "model_converters"):
            self._model(value)
        elif section == "optimizer":
            self._optimizer(value)
        elif section == "loss":
            self.values["loss.class"] = ast.unparse(value)[:80]
        elif isinstance(value, ast.Call):
            others = [each for each in value.args if not ast.unparse(each).startswith("config.")]
            if section in _READ_SECTIONS and (others or any(each.arg is None for each in value.keywords)):
                raise self._unread(section, value)
            for each in value.keywords:
                if each.arg:
                    self.values[f"{section}.{each.arg}"] = self._value(each.value)
        elif section in _READ_SECTIONS:
            raise self._unread(section, value)

    def _unread(self, what: str, value: ast.expr) -> BadInput:
        rule = "is built in a way that is not read"
        return BadInput(f"{self.source}: {what}", ast.unparse(value)[:80], rule, "write its settings out")

    def _model(self, value: ast.expr) -> None:
        if isinstance(value, ast.Call) and value.args and isinstance(value.args[0], ast.Constant):
            self.values["model.flavor"] = value.args[0].value
        text = ast.unparse(value)
        found = [ours for theirs, ours in _CONVERTERS.items() if theirs in text]
        if found:
            self.values["model.converters"] = found
        if "LoRA" in text:
            self.values["model.lora"] = True

    def _optimizer(self, value: ast.expr) -> None:
        names = [
            str(each.value.value)
            for each in ast.walk(value)
            if isinstance(each, ast.keyword)
            and each.arg in ("optimizer_name", "name")
            and isinstance(each.value, ast.Constant)
        ]
        text = ast.unparse(value).lower()
        others = [name for name in names if "adam" not in name.lower()]
        for each in ast.walk(value):
            if isinstance(each, ast.keyword) and each.arg == "implementation":
                self.values["optimizer.implementation"] = self._value(each.value)
        if others or "muon" in text:
            self.values["optimizer.name"] = others[0] if others else "Muon"

    def _value(self, value: ast.expr) -> object:
        try:
            return ast.literal_eval(value)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            pass
        if isinstance(value, ast.Name) and value.id in self.constants:
            return self.constants[value.id]
        return UnresolvedValue(text=ast.unparse(value)[:80])
