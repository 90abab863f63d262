"""Trainwright: how to train this model on that cluster.

As a library: `trainwright.plan(model, cluster)`, `simulate`, `export` and the other names of `__all__`, which
are loaded when they are first used. A type checker reads `__init__.pyi`. See docs/library.md.
"""

import sys
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

__version__ = "0.1.0"

_FUNCTIONS = (
    "advise", "calibrate", "catalog", "compare", "export", "plan", "simulate", "study_cluster_design",
    "study_comp_vs_comm", "study_flexible_plans", "study_scaling", "study_subnetworks", "sweep", "trace",
    "validate",
)  # fmt: skip
# What is loaded when it is first used, and the module that it is in.
_LATE = {
    **dict.fromkeys(_FUNCTIONS, "trainwright.library"),
    **dict.fromkeys(("BadInput", "InfeasiblePlan", "TrainwrightError"), "trainwright.errors"),
}
__all__ = ["__version__", *_LATE]


class _Package(ModuleType):
    """This package: a function that has the name of a package stands for both.

    `trainwright.plan` is a function, and `trainwright.plan.strategy` a module, whichever is loaded first.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _LATE or not isinstance(value, ModuleType):
            super().__setattr__(name, value)
        elif name in vars(self):
            _share_names(vars(self)[name], value)

    def __getattr__(self, name: str) -> Any:
        if name not in _LATE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_LATE[name]), name)
        package = sys.modules.get(f"{__name__}.{name}")
        if package is not None:
            _share_names(value, package)
        super().__setattr__(name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*_LATE, *(name for name in vars(self) if name.startswith("__"))})


def _share_names(function: FunctionType, package: ModuleType) -> None:
    """Make the modules of a package attributes of the function that has its name."""
    vars(package).update(vars(function))
    function.__dict__ = vars(package)


sys.modules[__name__].__class__ = _Package
