"""A model of a run as a function of its weights, so that algorithms can train slices of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F

from trainwright.algorithm.anatomy import Anatomy
from trainwright.algorithm.network import Batch
from trainwright.model.flow import Instance, wire
from trainwright.model.graph import dim_sizes
from trainwright.program.anatomy import build_anatomy, check_dense
from trainwright.program.reference import weight_key
from trainwright.runtime.kernels.matmul import project, projections_of
from trainwright.runtime.learner import Learner
from trainwright.runtime.samples import build_microbatches
from trainwright.runtime.work import IGNORED, Work

Values = Mapping[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class LearnerNetwork:
    """The operators of a learner's graph, one after another; a batch is rows of tokens.

    Attention heads (with keys that they share) and feed-forward neurons of each layer are units.
    """

    learner: Learner

    def __post_init__(self) -> None:
        check_dense(self.learner.graph)

    @cached_property
    def instances(self) -> tuple[Instance, ...]:
        """Operators in their order."""
        return tuple(wire(self.learner.graph))

    @cached_property
    def anatomy(self) -> Anatomy:
        """Weights under the keys that checkpoints have; groups `BLOCK/heads` and `BLOCK/ffn`."""
        return build_anatomy(self.learner.graph, self.learner.seq, self.instances)

    def _sizes(self, instance: Instance, held: Mapping[str, int]) -> dict[str, int]:
        """The sizes of dims, in a subnetwork that holds so many units of each group."""
        graph = self.learner.graph
        sizes = dict(dim_sizes(graph, graph.segments[instance.segment], 1, self.learner.seq))
        heads, ffn = held.get(f"{instance.block}/heads"), held.get(f"{instance.block}/ffn")
        if heads is not None:
            each = sizes["heads"] // sizes["kv_heads"]
            sizes |= {"kv_heads": heads, "heads": heads * each}
        return sizes | ({"ffn": ffn} if ffn is not None else {})

    def initial(self, seed: int) -> dict[str, torch.Tensor]:
        """The first weights of the run, which know their own seed."""
        first = self.learner.initial()
        return {each.name: first(each.name, each.sizes).detach().float() for each in self.anatomy.weights}

    def outputs(self, values: Values, inputs: torch.Tensor) -> torch.Tensor:
        """Logits of rows of tokens."""
        logits, _ = self._through(values, inputs)
        return logits

    def loss(self, values: Values, batch: Batch) -> torch.Tensor:
        """The mean loss of the next tokens."""
        logits, targets = self._through(values, batch.inputs)
        mean: torch.Tensor = F.cross_entropy(
            logits.flatten(0, -2).float(), targets.flatten(), ignore_index=IGNORED
        )
        return mean

    def _through(self, values: Values, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits, and the tokens that they are to foretell."""
        learner, place = self.learner, self.learner.loss
        (built,) = build_microbatches(rows.numpy(), 1, len(rows), place, torch.device("cpu"))
        microbatch, held = learner.taken(built), self._held(values)
        found: dict[str, torch.Tensor] = dict(microbatch.given)
        for instance in self.instances:
            if instance.name == place:
                return found[instance.inputs[0]], microbatch.targets[place]
            results = self._results(
                instance, found, values, self._sizes(instance, held) | {"batch": len(rows)}
            )
            found |= dict(zip(instance.outputs, results, strict=True))
        raise AssertionError("the graph has no loss")

    def _held(self, values: Values) -> dict[str, int]:
        """How many units of each group are here."""
        return {
            axis.group: values[weight.name].shape[place] // axis.width
            for weight in self.anatomy.weights
            for place, axis in enumerate(weight.axes)
            if axis
        }

    def _results(
        self, instance: Instance, found: Values, values: Values, sizes: Mapping[str, int]
    ) -> tuple[torch.Tensor, ...]:
        op = instance.op
        weights = {w.name: values[weight_key(self.learner.graph, instance, w)] for w in op.weights}
        inputs = tuple(found[name] for name in instance.inputs)
        if op.kind == "matmul":
            return tuple(project(inputs[0], projections_of(op), weights, {}))
        at = {dim: (0, size) for dim, size in sizes.items()}
        return tuple(
            self.learner.kernels[instance.name](
                Work(op=op, sizes=sizes, at=at, inputs=inputs, weights=weights)
            )
        )
