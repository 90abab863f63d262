"""Layers by number, as parameters name them: `0-3`, `4-`, `0-3,8`."""

import re
from collections.abc import Sequence

from trainwright.errors import BadInput

_RANGE = re.compile(r"(\d+)(-(\d*))?$", re.ASCII)


def chosen_layers(names: Sequence[str], text: str) -> list[str]:
    """The blocks whose number is in one of the ranges; all if there is none."""
    if not text:
        return list(names)
    ranges = [parse_range(word) for word in text.split(",")]
    found = [name for name in names if any(layer_number(name) in each for each in ranges)]
    if not found:
        raise BadInput("layers", text, f"the model has layers 0 to {len(names) - 1}", "choose some of them")
    return found


def layer_number(name: str) -> int:
    """The number of a block."""
    return int(name.rpartition(".")[2])


def parse_range(text: str) -> range:
    """The layers of one range; without an end, all from its start on."""
    match = _RANGE.match(text)
    if match is None:
        raise BadInput("layers", text, "is not a range of layers", "write 0-3, 4- or 7")
    first = int(match[1])
    last = first if match[2] is None else int(match[3]) if match[3] else _MOST
    return range(first, last + 1)


_MOST = 1 << 20
