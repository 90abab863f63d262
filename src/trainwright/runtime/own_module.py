"""A user's own module as a learner: traced, filled and stored under its own names."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from trainwright.errors import BadInput
from trainwright.model.flow import Instance, wire
from trainwright.model.graph import Graph, dim_sizes
from trainwright.runtime.answering import ANSWERS, TOKENS, answering
from trainwright.runtime.factory import load_factory
from trainwright.runtime.learner import DEFAULT_SEQ, GIVEN, Learner
from trainwright.runtime.quiet import quiet
from trainwright.runtime.state_file import State, fill_module
from trainwright.runtime.tracing.trace import trace
from trainwright.runtime.tracing.traced import Traced
from trainwright.runtime.whole import Initial
from trainwright.runtime.work import IGNORED
from trainwright.runtime.worker import DTYPES, Microbatch

_SAMPLES = 2  # of the example; the trace holds for any number


def build_own(text: str, seq: int | None, seed: int, start: Path | None, precision: str) -> Learner:
    """The module that a factory makes, with the weights that it has then or those of a file.

    It is traced in the precision that it will compute in, so that what it casts is cast.
    """
    made = load_factory(text, seed)

    def build() -> nn.Module:
        module = made()
        if start:
            fill_module(module, start)
        return module

    module = build()
    seq = seq or min(_longest(module), DEFAULT_SEQ)
    traced = _traced(module, build, seq, DTYPES.get(precision, torch.float32))
    own = _Own(build=build, traced=traced, loss=_only_loss(traced), ahead=False)
    own = replace(own, ahead=own.looks_ahead())
    return Learner(
        graph=traced.graph, kernels=traced.kernels, seq=seq, vocab=_vocab(traced, own.loss),
        initial=own.initial, taken=own.taken, stored=own.stored,
    )  # fmt: skip


def _longest(module: nn.Module) -> int:
    """The tokens that a module has room for, if it says so as Hugging Face's do."""
    stated = getattr(getattr(module, "config", None), "max_position_embeddings", None)
    return stated if isinstance(stated, int) and stated > 0 else DEFAULT_SEQ


def _traced(module: nn.Module, again: Callable[[], nn.Module], seq: int, dtype: torch.dtype) -> Traced:
    """The module as a graph; tables such as those of rotary positions stay precise where it allows that."""
    example = {name: torch.zeros(_SAMPLES, seq, dtype=torch.long) for name in (TOKENS, ANSWERS)}
    for parameter in module.parameters():
        parameter.data = parameter.data.to(dtype)
    with quiet():  # the exporter shows all that it has found when it fails
        try:
            return trace(answering(module), example)
        except BadInput:
            if dtype == torch.float32:
                raise
            return trace(answering(again().to(dtype)), example)


def _only_loss(traced: Traced) -> Instance:
    """The loss of a module, if it has one and needs nothing but tokens for it."""
    instances, name = wire(traced.graph), traced.graph.name
    given = {each for instance in instances for each in instance.inputs if each.startswith("input/")}
    losses = [each for each in instances if each.op.kind == "loss"]
    if len(losses) != 1:
        rule = f"its loss is made of {len(losses)} cross entropies, and not of one"
        raise BadInput("module", name, rule, "return that of torch.nn.functional.cross_entropy, or logits")
    if given != {GIVEN}:
        rule = f"computes with {', '.join(sorted(given)) or 'no tokens'}, not with the tokens alone"
        raise BadInput("module", name, rule, "use labels in the loss only, and the tokens in the model")
    return losses[0]


def _vocab(traced: Traced, loss: Instance) -> int:
    """The tokens that a module can be given and can answer."""
    found = [_sizes(traced, loss)[loss.op.contracted[0]]]
    for instance in wire(traced.graph):
        if GIVEN in instance.inputs:
            dims = [dim for weight in instance.op.weights for dim in weight.dims if dim.startswith("vocab")]
            found += [_sizes(traced, instance)[dim] for dim in dims]
    return min(found)


def _sizes(traced: Traced, instance: Instance) -> dict[str, int]:
    graph: Graph = traced.graph
    return dim_sizes(graph, graph.segments[instance.segment], _SAMPLES, traced.seq)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Own:
    """A traced module, and what makes it anew; `ahead` says that its loss itself looks one label ahead."""

    build: Callable[[], nn.Module]
    traced: Traced
    loss: Instance
    ahead: bool

    def initial(self) -> Initial:
        """The weights of the module as it is made, each as the graph has it."""
        parameters = dict(self.build().named_parameters(remove_duplicate=False))

        def initial(key: str, sizes: Sequence[int]) -> torch.Tensor:
            weight = self.traced.weights[key]
            return weight.load(parameters[weight.names[0]]).detach()

        return initial

    def stored(self, state: State) -> State:
        """The module's own state_dict with these weights in it."""
        module = self.build()
        parameters = dict(module.named_parameters(remove_duplicate=False))
        for key, weight in self.traced.weights.items():
            weight.save(state[key], parameters[weight.names[0]].detach())
        return {name: each for name, each in module.state_dict().items() if isinstance(each, torch.Tensor)}

    def taken(self, microbatch: Microbatch) -> Microbatch:
        """Tokens, and as labels those that follow them; the tokens themselves, if the loss looks ahead."""
        tokens, answers = microbatch.given[GIVEN], microbatch.targets[self.loss.name]
        if self.ahead:
            answers = torch.where(answers == IGNORED, IGNORED, tokens)
        inputs = {TOKENS: tokens, ANSWERS: answers}
        return Microbatch(
            given={value: each.load(inputs[each.name]) for value, each in self.traced.inputs.items()},
            targets={self.loss.name: self.traced.targets[self.loss.name](inputs)},
        )

    def looks_ahead(self) -> bool:
        """Whether the right answer at a place is the label of the next one, as for Hugging Face."""
        seq = self.traced.seq
        labels = torch.arange(1, _SAMPLES * seq + 1).view(_SAMPLES, seq)
        found = self.traced.targets[self.loss.name]({TOKENS: torch.zeros_like(labels), ANSWERS: labels})
        rows = found.movedim(self.loss.op.output.dims.index("batch"), 0).reshape(_SAMPLES, -1)
        if _agree(rows, labels):
            return False
        if _agree(rows[:, : seq - 1], labels[:, 1:]) and bool((rows[:, seq - 1 :] == IGNORED).all()):
            return True
        rule = "the right answer at a place is neither the label there nor the next one"
        remedy = "compare logits[:, t] with labels[:, t], or with labels[:, t + 1]"
        raise BadInput("module", self.traced.graph.name, rule, remedy)


def _agree(found: torch.Tensor, labels: torch.Tensor) -> bool:
    """Whether all answers that count are these labels."""
    return found.shape == labels.shape and bool(((found == labels) | (found == IGNORED)).all())
