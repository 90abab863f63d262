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
from trainwright.runtime.one_process import OneProcess, disturb
from trainwright.runtime.quiet import quiet
from trainwright.runtime.shortening import count_layers, shorten
from trainwright.runtime.state_file import State, fill_module
from trainwright.runtime.tracing.trace import trace
from trainwright.runtime.tracing.traced import Traced
from trainwright.runtime.whole import Initial
from trainwright.runtime.work import IGNORED
from trainwright.runtime.worker import DTYPES, Microbatch

_SAMPLES = 2  # of the first example


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
    layers = count_layers(module)
    seq = seq or min(_longest(module), DEFAULT_SEQ)
    dtype = DTYPES.get(precision, torch.float32)

    def whole(samples: int, module: nn.Module) -> Learner:
        found = _learner(module, build, (samples, seq), dtype, (layers, layers))
        return replace(found, shorter=lambda least: shorter(samples, least))

    def shorter(samples: int, least: int) -> Learner:
        few = shorten(build(), least)
        shape = (samples, seq)
        return _learner(few, lambda: shorten(build(), least), shape, dtype, (count_layers(few), layers))

    found = whole(_SAMPLES, module)
    assert found.alone is not None
    if found.alone.traced.any_batch:
        return found
    return replace(found, for_batch=lambda samples: whole(_checked(samples, found.alone), build()))


def _checked(samples: int, alone: OneProcess | None) -> int:
    """The samples of a microbatch, if a module that holds for one number of them can be traced with that."""
    assert alone is not None
    if samples < _SAMPLES:
        kept = alone.traced.notes[0] if alone.traced.notes else "an operator mixes samples"
        raise BadInput(
            "micro batch", samples, f"{alone.traced.graph.name} needs two samples or more: {kept}",
            "use a larger micro batch, such as mb2",
        )  # fmt: skip
    return samples


def _learner(
    module: nn.Module,
    build: Callable[[], nn.Module],
    shape: tuple[int, int],
    dtype: torch.dtype,
    layers: tuple[int, int],
) -> Learner:
    """A module for samples and tokens of that shape, traced; `build` makes it again."""
    traced, casts_all = _traced(module, build, shape, dtype)
    seq = shape[1]
    own = _Own(build=build, traced=traced, losses=_entropies(traced), ahead=False)
    own = replace(own, ahead=own.looks_ahead())

    def alone() -> nn.Module:
        made = disturb(build())
        return answering(made.to(dtype) if casts_all else _cast(made, dtype))

    return Learner(
        graph=traced.graph, kernels=traced.kernels, seq=seq, vocab=_vocab(traced, own.losses),
        initial=own.initial, taken=own.taken, stored=own.stored, decayed=traced.decayed,
        alone=OneProcess(
            build=alone, inputs=own.inputs, initial=lambda: own.initial(disturbed=True), traced=traced,
            layers=layers,
        ),
    )  # fmt: skip


def _longest(module: nn.Module) -> int:
    """The tokens that a module has room for, if it says so as Hugging Face's do."""
    stated = getattr(getattr(module, "config", None), "max_position_embeddings", None)
    return stated if isinstance(stated, int) and stated > 0 else DEFAULT_SEQ


def _traced(
    module: nn.Module, again: Callable[[], nn.Module], shape: tuple[int, int], dtype: torch.dtype
) -> tuple[Traced, bool]:
    """The module as a graph, and whether its buffers had to be cast.

    Tables such as those of rotary positions stay precise where it allows that.
    """
    example = {name: torch.zeros(shape, dtype=torch.long) for name in (TOKENS, ANSWERS)}
    with quiet():  # the exporter shows all that it has found when it fails
        try:
            return trace(answering(_cast(module, dtype)), example), False
        except BadInput:
            if dtype == torch.float32:
                raise
            return trace(answering(again().to(dtype)), example), True


def _cast(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """The same module with parameters, but not buffers, of a type."""
    for parameter in module.parameters():
        parameter.data = parameter.data.to(dtype)
    return module


def _entropies(traced: Traced) -> tuple[Instance, ...]:
    """The cross entropies of a module, if it has any and needs nothing but tokens beside their labels."""
    instances, name = wire(traced.graph), traced.graph.name
    given = {each for instance in instances for each in instance.inputs if each.startswith("input/")}
    entropies = tuple(each for each in instances if each.op.kind == "loss" and each.op.contracted)
    if not entropies:
        rule = "its loss has no plain cross entropy, and a token file has next tokens only"
        remedy = "return torch.nn.functional.cross_entropy, or logits; train on other losses from Python"
        raise BadInput("module", name, rule, remedy)
    if given != {GIVEN}:
        rule = f"computes with {', '.join(sorted(given)) or 'no tokens'}, not with the tokens alone"
        raise BadInput(
            "module", name, rule, "use labels in cross entropies only, and the tokens in the model"
        )
    return entropies


def _vocab(traced: Traced, losses: Sequence[Instance]) -> int:
    """The tokens that a module can be given and can answer."""
    found = [_sizes(traced, each)[each.op.contracted[0]] for each in losses]
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
    losses: tuple[Instance, ...]  # cross entropies
    ahead: bool

    def initial(self, *, disturbed: bool = False) -> Initial:
        """The weights of the module as it is made, each as the graph has it; or disturbed, for a check."""
        module = disturb(self.build()) if disturbed else self.build()
        parameters = dict(module.named_parameters(remove_duplicate=False))

        def initial(key: str, sizes: Sequence[int]) -> torch.Tensor:
            weight = self.traced.weights[key]
            return weight.load(parameters[weight.names[0]]).detach()

        return initial

    def stored(self, state: State) -> State:
        """The module's own state_dict with these weights in it; frozen ones are as they were."""
        module = self.build()
        parameters = dict(module.named_parameters(remove_duplicate=False))
        for key, weight in self.traced.weights.items():
            if weight.trained:
                weight.save(state[key], parameters[weight.names[0]].detach())
        return {name: each for name, each in module.state_dict().items() if isinstance(each, torch.Tensor)}

    def taken(self, microbatch: Microbatch) -> Microbatch:
        """Tokens, and as labels those that follow them; the tokens themselves, if the loss looks ahead."""
        inputs = self.inputs(microbatch)
        return Microbatch(
            given={value: each.load(inputs[each.name]) for value, each in self.traced.inputs.items()},
            targets={each.name: self.traced.targets[each.name](inputs) for each in self.losses},
        )

    def inputs(self, microbatch: Microbatch) -> dict[str, torch.Tensor]:
        """The module's own inputs."""
        tokens, answers = microbatch.given[GIVEN], next(iter(microbatch.targets.values()))
        if self.ahead:
            answers = torch.where(answers == IGNORED, IGNORED, tokens)
        return {TOKENS: tokens, ANSWERS: answers}

    def looks_ahead(self) -> bool:
        """Whether the right answer at a place is the label of the next one, as for Hugging Face.

        Of several cross entropies, the one decides that looks least far ahead.
        """
        found = {self._distance(each) for each in self.losses}
        if found <= {None}:
            rule = "the right answer at a place is neither the label there nor the next one"
            remedy = "compare logits[:, t] with labels[:, t], or with labels[:, t + 1]"
            raise BadInput("module", self.traced.graph.name, rule, remedy)
        return 0 not in found

    def _distance(self, loss: Instance) -> int | None:
        """How many places ahead the labels of a cross entropy are: 0, 1, or otherwise."""
        seq = self.traced.seq
        labels = torch.arange(1, _SAMPLES * seq + 1).view(_SAMPLES, seq)
        found = self.traced.targets[loss.name]({TOKENS: torch.zeros_like(labels), ANSWERS: labels})
        rows = found.movedim(loss.op.output.dims.index("batch"), 0).reshape(_SAMPLES, -1)
        if _agree(rows, labels):
            return 0
        ends = bool((rows[:, seq - 1 :] == IGNORED).all())
        return 1 if _agree(rows[:, : seq - 1], labels[:, 1:]) and ends else None


def _agree(found: torch.Tensor, labels: torch.Tensor) -> bool:
    """Whether all answers that count are these labels."""
    return found.shape == labels.shape and bool(((found == labels) | (found == IGNORED)).all())
