"""Megatron's pipeline layouts: which layers each chunk of a pipeline has, as one line of text."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from trainwright.errors import BadInput

EMBEDDING, LAYER, MTP, LOSS = "E", "t", "m", "L"
_LETTERS = {"embedding": EMBEDDING, "decoder": LAYER, "mtp": MTP, "loss": LOSS}
_MOST_LETTERS = 100_000  # of a layout that is written out
_GROUP = re.compile(r"\(([^()]*)\)\*(\d+)")
_REPEATED = re.compile(r"([EtmL])\*(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineLayout:
    """The chunks of a pipeline in the order of the model, each as its letters."""

    chunks: tuple[str, ...]

    @property
    def layers(self) -> tuple[int, ...]:
        """Layers of each chunk."""
        return tuple(each.count(LAYER) for each in self.chunks)

    @property
    def letters(self) -> str:
        """All letters in the order of the model."""
        return "".join(self.chunks)


def parse_layout(text: str, thing: str) -> PipelineLayout:
    """The layout of a text such as `Et*3|(tt|)*29,m|L`: commas separate, `*N` repeats a letter or a group."""
    written = text.replace(",", " ") if not _has_space(text) else ""
    for pattern in (_GROUP, _REPEATED):
        size = len(written) + sum(len(each[1]) * int(each[2][:9]) for each in pattern.finditer(written))
        if size > _MOST_LETTERS:
            raise BadInput(thing, text, f"has more than {_MOST_LETTERS:,} letters", "correct its numbers")
        written = pattern.sub(lambda each: each[1] * int(each[2]), written)
    written = written.replace(" ", "")
    if not re.fullmatch(r"[EtmL|]+", written):
        raise BadInput(
            thing, text, "is no layout of E (embedding), t (layer), m (MTP layer), L (loss) and |",
            "write it like Et*3|(tt|)*29,m|L",
        )  # fmt: skip
    return PipelineLayout(chunks=tuple(written.split("|")))


def layout_of_names(chunks: object, thing: str) -> PipelineLayout:
    """The layout of lists of names, as Python configurations state it: `[["embedding", "decoder"], …]`."""
    if not isinstance(chunks, list | tuple) or not all(isinstance(each, list | tuple) for each in chunks):
        raise BadInput(thing, str(chunks)[:80], "is no list of lists of names", "correct it")
    if any(name not in _LETTERS for each in chunks for name in each):
        raise BadInput(thing, str(chunks)[:80], f"has names besides {', '.join(_LETTERS)}", "correct it")
    return PipelineLayout(chunks=tuple("".join(_LETTERS[name] for name in each) for each in chunks))


def render_layers(layers: Sequence[int]) -> str:
    """Numbers of layers with repeats counted: `3, 4 x14, 2`."""
    runs = [(count, len(list(each))) for count, each in groupby(layers)]
    return ", ".join(f"{count} x{times}" if times > 1 else str(count) for count, times in runs)


def _has_space(text: str) -> bool:
    return any(each.isspace() for each in text)
