"""A small decoder as a function of its weights: attention heads and feed-forward neurons are its units."""

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F

from trainwright.algorithm.anatomy import Anatomy, Axis, Weight
from trainwright.algorithm.network import Batch, Values, cross_entropy


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """Norms first, learned positions, the head tied to the embedding; embeddings and norms are shared."""

    vocab: int
    seq: int
    layers: int
    hidden: int
    heads: int
    ffn: int
    head_dim: int = 0  # 0: as wide as heads that fill the hidden size

    @property
    def head_width(self) -> int:
        """The width of a head."""
        return self.head_dim or self.hidden // self.heads

    @cached_property
    def anatomy(self) -> Anatomy:
        """Groups `layer.I.heads` and `layer.I.ffn`."""
        weights = [
            Weight(name="embedding", sizes=(self.vocab, self.hidden)),  # a product at the head
            Weight(name="positions", sizes=(self.seq, self.hidden), product=False),
        ]
        units: dict[str, int] = {}
        for i in range(self.layers):
            weights += self._layer(f"layer.{i}")
            units |= {f"layer.{i}.heads": self.heads, f"layer.{i}.ffn": self.ffn}
        weights += [_vector("norm", self.hidden)]
        # Scores and the mean of values: 2 products of seq x seq x head_dim, half of it masked.
        scores = 2 * self.seq * self.seq * self.head_width
        flops = {name: scores for name in units if name.endswith("heads")}
        return Anatomy(weights=tuple(weights), units=units, positions=self.seq, unit_flops=flops)

    def _layer(self, name: str) -> list[Weight]:
        heads, ffn = Axis(group=f"{name}.heads", width=self.head_width), Axis(group=f"{name}.ffn")
        wide, tall = (self.heads * self.head_width, self.hidden), (self.ffn, self.hidden)
        inside = [Weight(name=f"{name}.{each}", sizes=wide, axes=(heads, None)) for each in ("q", "k", "v")]
        return [
            _vector(f"{name}.norm1", self.hidden), *inside,
            Weight(name=f"{name}.output", sizes=wide[::-1], axes=(None, heads), reads=heads.group),
            _vector(f"{name}.norm2", self.hidden),
            Weight(name=f"{name}.up", sizes=tall, axes=(ffn, None)),
            Weight(name=f"{name}.down", sizes=tall[::-1], axes=(None, ffn), reads=ffn.group),
        ]  # fmt: skip

    def initial(self, seed: int) -> dict[str, torch.Tensor]:
        """Small numbers, and ones for norms; what goes back to the residual stream is smaller by depth."""
        source, found = torch.Generator().manual_seed(seed), {}
        for each in self.anatomy.weights:
            if len(each.sizes) == 1:
                found[each.name] = torch.ones(each.sizes)
                continue
            deviation = 0.02 if each.name in ("embedding", "positions") else each.sizes[1] ** -0.5
            deviation /= (2 * self.layers) ** 0.5 if each.reads else 1.0
            found[each.name] = deviation * torch.randn(each.sizes, generator=source)
        return found

    def outputs(self, values: Values, inputs: torch.Tensor) -> torch.Tensor:
        """Logits of the token after each."""
        x = F.embedding(inputs, values["embedding"]) + values["positions"][: inputs.shape[1]]
        for i in range(self.layers):
            x = x + self._attend(values, f"layer.{i}", x)
            y = F.rms_norm(x, (self.hidden,), values[f"layer.{i}.norm2"])
            x = x + F.linear(F.gelu(F.linear(y, values[f"layer.{i}.up"])), values[f"layer.{i}.down"])
        return F.linear(F.rms_norm(x, (self.hidden,), values["norm"]), values["embedding"])

    def _attend(self, values: Values, name: str, x: torch.Tensor) -> torch.Tensor:
        x = F.rms_norm(x, (self.hidden,), values[f"{name}.norm1"])
        q, k, v = (
            F.linear(x, values[f"{name}.{each}"]).view(*x.shape[:2], -1, self.head_width).transpose(1, 2)
            for each in ("q", "k", "v")
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return F.linear(mixed.transpose(1, 2).flatten(2), values[f"{name}.output"])

    def loss(self, values: Values, batch: Batch) -> torch.Tensor:
        """Cross entropy of the next tokens."""
        return cross_entropy(self.outputs(values, batch.inputs), batch.targets)


def _vector(name: str, size: int) -> Weight:
    return Weight(name=name, sizes=(size,), product=False)
