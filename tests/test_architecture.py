"""The rules of the house: layers, cycles, where torch and slow imports may appear, names, docstrings."""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "trainwright"

# A package imports from rows above its own, or from itself; neighbours in one row do not know each other.
LAYERS = (
    ("errors",),
    ("units", "checksum", "input_file", "output_file"),
    ("cluster", "model", "stack"),
    ("cost", "economics"),
    ("algorithm",),
    ("plan",),
    ("program",),
    ("simulate", "estimate"),
    ("search", "report", "export"),
    ("validate", "runtime"),
    ("study", "sweep"),
    ("api",),
    ("web", "library"),
    ("cli",),
)
ROW = {package: row for row, packages in enumerate(LAYERS) for package in packages}
FORBIDDEN_NAMES = {"utils", "util", "common", "helpers", "helper", "base", "manager", "managers", "misc"}


def module_name(path: Path) -> str:
    parts = ("trainwright", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


TREES: Mapping[str, ast.Module] = {
    module_name(path): ast.parse(path.read_text(encoding="utf-8"), str(path))
    for path in sorted(ROOT.rglob("*.py"))
}
PACKAGES = {module_name(path) for path in ROOT.rglob("__init__.py")}
MODULES = sorted(TREES)


def imported_names(module: str) -> Iterator[str]:
    """Every name that a module imports, those inside functions and for type checkers included."""
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = absolute_source(module, node)
            yield from (f"{source}.{alias.name}" for alias in node.names)


def absolute_source(module: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.split(".") if module in PACKAGES else module.split(".")[:-1]
    parts = parts[: len(parts) - node.level + 1]
    return ".".join([*parts, *([node.module] if node.module else [])])


def imported_modules(module: str) -> set[str]:
    """Modules of this package that a module imports: a name taken from a module counts as that module."""
    found = set()
    for name in imported_names(module):
        while name.startswith("trainwright") and name not in TREES:
            name = name.rpartition(".")[0]
        found |= {name} & set(TREES)
    return found - {module}


def package_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def test_the_rules_see_the_package() -> None:
    assert {"trainwright.units", "trainwright.estimate.step"} <= set(MODULES)
    assert "trainwright.errors" in imported_modules("trainwright.units")


@pytest.mark.parametrize("module", [m for m in MODULES if package_of(m)])
def test_every_module_belongs_to_a_layer(module: str) -> None:
    assert package_of(module) in ROW, f"add {package_of(module)} to LAYERS and to the design"


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_from_rows_above_its_own(module: str) -> None:
    own = package_of(module)
    for other in sorted(imported_modules(module)):
        target = package_of(other)
        if target and target != own:
            assert own, f"{module} is imported by everything, so it may not import {other}"
            assert ROW[target] < ROW[own], f"{module} imports {other}, which is not above it"


def test_no_modules_import_each_other_in_a_circle() -> None:
    # A package's __init__ is loaded before its modules, but is a doorway, not a dependency.
    graph = {module: imported_modules(module) for module in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("import cycle: " + " -> ".join(error.args[1]))


@pytest.mark.parametrize("module", MODULES)
def test_torch_is_imported_only_where_models_run_or_are_traced(module: str) -> None:
    uses_torch = any(name.split(".")[0] == "torch" for name in imported_names(module))
    allowed = package_of(module) in ("runtime", "algorithm") or module.startswith("trainwright.model.trace")
    assert allowed or not uses_torch


@pytest.mark.parametrize("module", MODULES)
def test_every_module_says_what_it_is(module: str) -> None:
    assert (ast.get_docstring(TREES[module]) or "").strip()


@pytest.mark.parametrize("module", MODULES)
def test_no_module_is_named_after_nothing(module: str) -> None:
    assert not FORBIDDEN_NAMES & set(module.split("."))


def test_the_command_line_starts_without_numpy_and_rich() -> None:
    loaded = (
        "import sys, trainwright.cli.main; "
        "print(*{name.partition('.')[0] for name in sys.modules} & {'numpy', 'scipy', 'rich', 'torch'})"
    )
    result = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=False, cwd=ROOT.parent
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == []


# Who else may write: checkpoints and requests, in directories that the program has made for them itself.
WRITERS = {
    "trainwright.output_file",
    "trainwright.runtime.shelf",
    "trainwright.runtime.apart.keep",
}
WRITING = {"write_text", "write_bytes", "rename", "savez", "tofile", "to_csv", "write_html", "write_image"}


def writes_a_file(call: ast.Call) -> bool:
    """Whether a call opens a path for writing, or gives a file another name."""
    attribute = isinstance(call.func, ast.Attribute)
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name == "open":
        mode = [each for each in call.args[not attribute :][:1] if isinstance(each, ast.Constant)]
        mode += [each.value for each in call.keywords if each.arg == "mode"]
        return any(set("wax+") & set(str(getattr(each, "value", ""))) for each in mode)
    if name == "replace":  # Path.replace(target) has one argument, str.replace two
        return attribute and len(call.args) == 1 and not call.keywords
    if name == "save":  # by torch or numpy, unless to a file that is open
        library = getattr(getattr(call.func, "value", None), "id", "") in ("torch", "np", "numpy")
        return library and getattr(call.args[-1], "id", "") != "file"
    return attribute and name in WRITING


def test_the_rule_of_writers_sees_who_writes() -> None:
    writing = "p.open('wb'), open(p, mode='a'), draft.replace(p), torch.save(x, p), p.write_text(t)"
    reading = "p.open('rb'), open(p), t.replace('a', 'b'), replace(x, a=1), torch.save(x, file)"
    for text, expected in ((writing, True), (reading, False)):
        calls = [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.Call)]
        assert [writes_a_file(each) for each in calls] == [expected] * 5


@pytest.mark.parametrize("module", [m for m in MODULES if m not in WRITERS])
def test_output_files_are_opened_by_one_module(module: str) -> None:
    calls = [each for each in ast.walk(TREES[module]) if isinstance(each, ast.Call)]
    lines = [each.lineno for each in calls if writes_a_file(each)]
    assert not lines, f"lines {lines}: write files by trainwright.output_file"
