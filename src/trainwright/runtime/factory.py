"""A user's own module by name: `package.module:factory` or `path/to/file.py:factory`."""

import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from trainwright.errors import BadInput, UnknownName
from trainwright.runtime.quiet import quiet_unless_first

_FORMS = 'write "package.module:factory" or "path/to/file.py:factory"'
_Factory = Callable[[], Any]


def load_factory(text: str, seed: int) -> Callable[[], nn.Module]:
    """What makes the module that a text names: the same each time, in full precision, ready to be trained."""
    with quiet_unless_first():
        factory = _found(text)

    def build() -> nn.Module:
        with torch.random.fork_rng(devices=[]), quiet_unless_first():
            torch.manual_seed(seed)
            return _trainable(text, _made(text, factory))

    return build


def _found(text: str) -> _Factory:
    source, _, name = text.rpartition(":")
    if not source or not name.isidentifier():
        raise BadInput("model", text, "names no factory", _FORMS)
    module = _of_file(text, Path(source)) if source.endswith(".py") else _of_package(text, source)
    found = getattr(module, name, None)
    if found is None:
        known = [each for each, value in vars(module).items() if callable(value) and each[0] != "_"]
        raise UnknownName(f"{source}: factory", name, known)
    if not callable(found):
        rule = f"is of type {type(found).__name__}, and cannot be called"
        raise BadInput(f"{source}: factory", name, rule, "name a function that returns a module")
    return found  # type: ignore[no-any-return]


def _of_file(text: str, path: Path) -> ModuleType:
    """The module of a file; what lies beside it can be imported in it, as in a script."""
    if not path.is_file():
        raise BadInput("model", text, f"there is no file {path}", "check the path")
    _see(path.parent)
    name = f"trainwright_user_{path.stem}"  # hides nothing that is installed
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    loader = spec.loader
    _attempt(text, "importing it raises", lambda: loader.exec_module(module))
    return module


def _of_package(text: str, name: str) -> ModuleType:
    _see(Path())
    try:
        return _attempt(text, "importing it raises", lambda: import_module(name))  # type: ignore[no-any-return]
    except BadInput as error:
        missing = error.__cause__
        if isinstance(missing, ModuleNotFoundError) and f"{name}.".startswith(f"{missing.name}."):
            rule = f"there is no module {missing.name}"
            remedy = "install it, go to its directory, or name a file: path/to/file.py:factory"
            raise BadInput("model", text, rule, remedy) from None
        raise


def _see(directory: Path) -> None:
    """Let modules of a directory be imported."""
    place = str(directory.resolve())
    if place not in sys.path:
        sys.path.insert(0, place)


def _attempt(text: str, what: str, act: Callable[[], Any]) -> Any:
    """What the user's code returns; an error of it is the user's."""
    try:
        return act()
    except (Exception, SystemExit) as error:
        raise BadInput("model", text, f"{what} {_described(error)}", "mend it") from error


def _described(error: BaseException) -> str:
    """An error in one line, and where it was raised."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    return f"{said} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else said


def _made(text: str, factory: _Factory) -> nn.Module:
    found = _attempt(text, "the factory raises", factory)
    if not isinstance(found, nn.Module):
        rule = f"the factory returns {type(found).__name__}, and not a torch.nn.Module"
        raise BadInput("model", text, rule, "return the module")
    return found


def _trainable(text: str, module: nn.Module) -> nn.Module:
    module = _attempt(text, "its weights cannot be used:", lambda: module.cpu().float()).train()
    for parameter in module.parameters():
        parameter.data = parameter.data.contiguous()
    return module
