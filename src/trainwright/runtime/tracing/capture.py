"""A module as PyTorch's exporter sees it: a flat list of tensor operations."""

import operator
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from trainwright.errors import BadInput
from trainwright.runtime.tracing.nodes import is_tensor, op_name


@dataclass(frozen=True, slots=True, kw_only=True)
class LossTerm:
    """A term of the loss: its place among the results of the graph, and what it counts."""

    place: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """The output of a module that it is trained on: a constant, and terms that count their share."""

    name: str
    terms: tuple[LossTerm, ...]
    constant: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """The operations of a module, with what it is given and what it returns.

    Parameters, inputs and constants are placeholders of `graph`; `parameters` holds all names under which
    the module knows each of them, the first one in its order first.
    """

    name: str  # the class of the module
    graph: Graph
    parameters: Mapping[Node, tuple[str, ...]]
    inputs: Mapping[Node, str]
    constants: Mapping[Node, torch.Tensor]
    places: Mapping[str, int]  # of what it returns, by name, among the results of `graph`
    objective: Objective | None = None
    frozen: frozenset[str] = frozenset()  # first names of parameters that require no gradient

    @property
    def terms(self) -> dict[Node, float]:
        """The terms of the loss, and the share of each."""
        returned = self.graph.output_node().args[0]
        assert isinstance(returned, tuple | list)
        listed = self.objective.terms if self.objective else ()
        return {returned[each.place]: each.share for each in listed}  # type: ignore[misc]

    @property
    def outputs(self) -> dict[str, Node]:
        """What the module returns, by its place in the result: "loss", "0", "hidden.1"."""
        returned = self.graph.output_node().args[0]
        assert isinstance(returned, tuple | list)
        found = {name: returned[place] for name, place in self.places.items()}
        return {name: node for name, node in found.items() if isinstance(node, Node) and is_tensor(node)}


def capture(module: nn.Module, example_inputs: Any) -> Capture:
    """The operations of a module on inputs of the shapes of the examples."""
    args, kwargs = example_arguments(example_inputs)
    try:
        with _without_own_gradients(module):
            program = torch.export.export(module, args, kwargs, strict=False)
    except BadInput:  # of a module of ours around the user's
        raise
    except Exception as error:
        raise BadInput(
            "module", type(module).__name__, f"PyTorch cannot export it ({_first_line(error)})",
            "let no tensor's values decide which operations run, and give inputs that the module accepts",
        ) from error  # fmt: skip
    return _captured(module, program)


@contextmanager
def _without_own_gradients(module: nn.Module) -> Iterator[None]:
    """Refuses gradients that a module has written itself: the exporter would leave them out."""
    before = torch.autograd.Function.__dict__["apply"]

    def apply(kind: type, *given: Any, **more: Any) -> Any:
        if kind.__module__.partition(".")[0] != "torch":
            raise BadInput(
                f"module {type(module).__name__}", kind.__name__,
                "is an autograd.Function, whose backward the exporter leaves out",
                "write it with torch operations, or as a torch.library.custom_op with register_autograd",
            )  # fmt: skip
        return before.__get__(None, kind)(*given, **more)

    torch.autograd.Function.apply = classmethod(apply)  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        torch.autograd.Function.apply = before  # type: ignore[method-assign]


def example_arguments(example_inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and named inputs, as copies: the exporter takes one tensor given twice for one input."""
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    if isinstance(example_inputs, Mapping):
        kwargs = dict(example_inputs)
    elif isinstance(example_inputs, tuple | list):
        args = tuple(example_inputs)
    else:
        args = (example_inputs,)
    return pytree.tree_map_only(  # type: ignore[no-any-return]
        torch.Tensor, lambda each: each.detach().clone(), (args, kwargs)
    )


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _captured(module: nn.Module, program: torch.export.ExportedProgram) -> Capture:
    graph, signature = program.graph_module.graph, program.graph_signature
    nodes = {node.name: node for node in graph.nodes}
    names = _names(module)
    parameters, inputs, constants = {}, {}, {}
    for spec in signature.input_specs:
        node = nodes.get(spec.arg.name)
        if node is None or not isinstance(node.meta.get("val"), torch.Tensor):
            continue
        if spec.kind == InputKind.PARAMETER:
            assert spec.target is not None
            parameters[node] = names[id(module.get_parameter(spec.target))]
        elif spec.kind == InputKind.USER_INPUT:
            inputs[node] = spec.arg.name
        elif spec.kind in (InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            assert spec.target is not None
            constants[node] = _constant(program, spec.target)
    flat = _flat(program.graph_module)
    _check_sizes(type(module).__name__, flat)
    return Capture(
        name=type(module).__name__, graph=flat, parameters=parameters, inputs=inputs, constants=constants,
        places=_outputs(program), frozen=_frozen(module),
    )  # fmt: skip


def _check_sizes(name: str, graph: Graph) -> None:
    """Refuse a module in which the values of tensors decide how large others are."""
    for node in graph.nodes:
        if isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool):
            raise BadInput(
                f"module {name}", op_name(node), "makes tensors whose sizes depend on values",
                "use a fixed size, such as the most elements there can be, and mask the rest",
            )  # fmt: skip


def _names(module: nn.Module) -> dict[int, tuple[str, ...]]:
    found: dict[int, tuple[str, ...]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        found[id(parameter)] = (*found.get(id(parameter), ()), name)
    return found


def _frozen(module: nn.Module) -> frozenset[str]:
    return frozenset(name for name, each in module.named_parameters() if not each.requires_grad)


def _constant(program: torch.export.ExportedProgram, target: str) -> torch.Tensor:
    found = program.state_dict.get(target, program.constants.get(target))
    assert isinstance(found, torch.Tensor)
    return found.detach()


def _outputs(program: torch.export.ExportedProgram) -> dict[str, int]:
    listed = [
        place
        for place, spec in enumerate(program.graph_signature.output_specs)
        if spec.kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)
    ]
    tree = pytree.tree_unflatten(listed, program.call_spec.out_spec)
    return {path or "output": place for path, place in _places(tree, "")}


def _places(tree: Any, path: str) -> list[tuple[str, int]]:
    if isinstance(tree, int):
        return [(path, tree)]
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(tree, Mapping):
        items = tree.items()
    elif isinstance(tree, tuple | list):
        items = enumerate(tree)
    return [each for key, below in items for each in _places(below, f"{path}.{key}" if path else str(key))]


def _flat(module: torch.fx.GraphModule) -> Graph:
    """The module's graph with what runs without gradients written out in place."""
    graph = module.graph
    for node in list(graph.nodes):
        if node.op != "call_function" or not isinstance(node.target, torch._ops.HigherOrderOperator):
            continue
        inner = [each for each in node.args if isinstance(each, Node) and each.op == "get_attr"]
        if len(inner) != 1:
            raise BadInput(
                "operation", str(node.target), "has no meaning here", "write the module without it"
            )
        start = node.args.index(inner[0])
        _inline(graph, node, module.get_submodule(str(inner[0].target)), node.args[start + 1 :])
    return graph


def _inline(graph: Graph, node: Node, body: nn.Module, given: tuple[Any, ...]) -> None:
    copies: dict[Node, Any] = {}
    arguments = iter(given)
    with graph.inserting_before(node):
        for each in body.graph.nodes:  # type: ignore[union-attr]
            if each.op == "placeholder":
                copies[each] = next(arguments)
            elif each.op == "output":
                results = torch.fx.map_arg(each.args[0], copies.__getitem__)
            else:
                copies[each] = graph.node_copy(each, copies.__getitem__)
                copies[each].meta.setdefault("nn_module_stack", node.meta.get("nn_module_stack"))
    for user in list(node.users):
        assert user.target is operator.getitem
        with graph.inserting_before(user):
            stopped = graph.call_function(torch.ops.aten.detach.default, (results[user.args[1]],))
            stopped.meta |= user.meta
        user.replace_all_uses_with(stopped)
        graph.erase_node(user)
    graph.erase_node(node)
