"""Text that needs no file: the help topics that every Python brings, as characters."""

from collections import Counter
from dataclasses import dataclass
from functools import cache

import torch

from trainwright.algorithm.network import Batch

VOCAB = 96  # the 95 most frequent characters, and one for all others


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Places of characters in the vocabulary: to learn from, to choose by, to be judged by."""

    train: torch.Tensor
    validation: torch.Tensor
    test: torch.Tensor


@cache
def read_corpus() -> Corpus:
    """The topics in the order of their names; every tenth is for choosing, every tenth for judging."""
    from pydoc_data.topics import topics

    parts: dict[str, list[str]] = {"train": [], "validation": [], "test": []}
    for number, name in enumerate(sorted(topics)):
        parts[{3: "validation", 7: "test"}.get(number % 10, "train")].append(topics[name])
    texts = {name: "\n".join(each) for name, each in parts.items()}
    known = {each: place for place, (each, _) in enumerate(Counter(texts["train"]).most_common(VOCAB - 1))}
    return Corpus(
        **{name: torch.tensor([known.get(each, VOCAB - 1) for each in text]) for name, text in texts.items()}
    )


def draw_windows(text: torch.Tensor, seq: int, count: int, seed: int) -> Batch:
    """Random stretches of a text, and the characters that come after each of theirs."""
    source = torch.Generator().manual_seed(seed)
    first = torch.randint(len(text) - seq, (count, 1), generator=source)
    found = text[first + torch.arange(seq + 1)]
    return Batch(found[:, :-1], found[:, 1:])
