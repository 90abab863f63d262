"""Trainwright: how to train this model on that cluster.

As a library: `trainwright.plan(model, cluster)`, `simulate`, `sweep`, `export`, `advise` and `trace`, which
are loaded when they are first used. A type checker reads `__init__.pyi`. See docs/library.md.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

__version__ = "0.1.0"
__all__ = ["__version__", "advise", "export", "plan", "simulate", "sweep", "trace"]

# What is loaded when it is first used, and the module that it is in.
_LATE = {
    "advise": "trainwright.library",
    "trace": "trainwright.library.tracing",
}
# Packages that are functions of the library too: trainwright.plan is a package, and plan(...) asks it.
_CALLED = ("plan", "simulate", "sweep", "export")


class _Called(ModuleType):
    """A package that can be called: it asks the function of the library that has its name."""

    def __call__(self, *values: Any, **options: Any) -> Any:
        name = self.__name__.rpartition(".")[2]
        return getattr(import_module("trainwright.library"), name)(*values, **options)


class _Package(ModuleType):
    """This package: those of its packages that are functions too can be called, once they are loaded."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _CALLED and isinstance(value, ModuleType):
            value.__class__ = _Called
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name in _CALLED:
            return import_module(f"{__name__}.{name}")
        if name in _LATE:
            return getattr(import_module(_LATE[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


sys.modules[__name__].__class__ = _Package
