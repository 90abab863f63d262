"""A module that the equality suite trains under plans: how it is built, and what it is given."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

Inputs = dict[str, torch.Tensor]
MakeInputs = Callable[[int, int], Inputs]  # of a number of samples and a seed

SEQ, VOCAB, CLASSES = 16, 64, 8
_SPREAD = 0.05  # added to all weights: what starts at zero, or at one, hides faults


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One architecture; `experts` says that expert parallelism applies to it."""

    name: str
    kind: str  # "Hugging Face" or "own module"
    build: Callable[[], nn.Module]
    inputs: MakeInputs
    experts: bool = False
    sequence: bool = True  # whether context parallelism may apply: its samples are sequences

    def build_random(self) -> nn.Module:
        """The module with random weights, none of them at a special value."""
        torch.manual_seed(0)
        module = self.build()
        random = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in module.parameters():
                noise = torch.randn(parameter.shape, generator=random) * _SPREAD
                parameter.add_(noise.to(parameter.dtype))
        return module.train()


def tokens(samples: int, seed: int) -> Inputs:
    """Random tokens, with labels of which the first three do not count."""
    random = torch.Generator().manual_seed(seed)
    drawn = torch.randint(4, VOCAB, (samples, SEQ), generator=random)
    labels = drawn.clone()
    labels[:, :3] = -100
    return {"input_ids": drawn, "labels": labels}


def masked_tokens(samples: int, seed: int) -> Inputs:
    """Random tokens, with other random tokens as labels at two of three places."""
    random = torch.Generator().manual_seed(seed)
    drawn, labels = (torch.randint(4, VOCAB, (samples, SEQ), generator=random) for _ in range(2))
    labels[:, ::3] = -100
    return {"input_ids": drawn, "labels": labels}


def classified_tokens(samples: int, seed: int) -> Inputs:
    """Random tokens, with a class for each sample."""
    random = torch.Generator().manual_seed(seed)
    drawn = torch.randint(4, VOCAB, (samples, SEQ), generator=random)
    return {"input_ids": drawn, "labels": torch.randint(CLASSES, (samples,), generator=random)}


def translated_tokens(samples: int, seed: int) -> Inputs:
    """Random tokens for an encoder, and labels of half the length for a decoder."""
    random = torch.Generator().manual_seed(seed)
    drawn = torch.randint(4, VOCAB, (samples, SEQ), generator=random)
    labels = torch.randint(4, VOCAB, (samples, SEQ // 2), generator=random)
    return {"input_ids": drawn, "labels": labels}


def images(size: int, channels: int = 3) -> MakeInputs:
    """Random images with a class each."""

    def inputs(samples: int, seed: int) -> Inputs:
        random = torch.Generator().manual_seed(seed)
        pixels = torch.randn(samples, channels, size, size, generator=random)
        return {"pixel_values": pixels, "labels": torch.randint(CLASSES, (samples,), generator=random)}

    return inputs


def vectors(**widths: int | tuple[int, ...]) -> MakeInputs:
    """Random numbers of the given shapes, and a class `y` for each sample."""

    def inputs(samples: int, seed: int) -> Inputs:
        random = torch.Generator().manual_seed(seed)
        found = {
            name: torch.randn(samples, *((shape,) if isinstance(shape, int) else shape), generator=random)
            for name, shape in widths.items()
        }
        return {**found, "y": torch.randint(CLASSES, (samples,), generator=random)}

    return inputs
