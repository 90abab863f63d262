"""A schedule drawn in plain text: places down, time across."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from trainwright.program.table import ONCE, Floats, Ints, Table
from trainwright.simulate.rounds import STEPS
from trainwright.simulate.timeline import Pieces, Timeline, all_pieces
from trainwright.units import render_duration

# What a cell can show, in the order of the legend. Lower case: communication that is exposed.
CELLS: Mapping[str, str] = {
    ".": "idle",
    "F": "forward",
    "N": "forward without gradient",
    "R": "recompute",
    "B": "backward",
    "I": "gradient of inputs",
    "W": "gradient of weights",
    "S": "once a step",
    "=": "steps like the last",
    "+": "other work",
    "t": "tp",
    "c": "cp",
    "e": "ep",
    "p": "pp",
    "d": "dp",
    "o": "offload",
    "s": "sync",
}
_IDLE, _OTHER, _STEPS = ".", "+", "="
_COMMUNICATION = {cause: cell for cell, cause in CELLS.items() if cell.islower()}
_DIGITS = 11  # the last digit of a microbatch, or none
_FEWEST = 10  # columns, however narrow the terminal
_INSTANT = 1e-30  # a step of no length has no shares
_SHARES = "  works  exposed  idle"


class _Row(NamedTuple):
    cells: str
    digits: str
    shares: str


def render_schedule(timeline: Timeline, width: int = 100, most: int = 32, microbatches: bool = True) -> str:
    """A row for each of at most `most` places, `width` wide: a cell is what most of its time is charged to.

    At the end of a row, the shares of the step in which the place works, waits for exposed communication
    (which may be too short everywhere to fill a cell), and is idle. With `microbatches`, a second row has the
    last digit of each cell's microbatch.
    """
    places = timeline.table.places
    shown = set(np.linspace(0, len(places) - 1, min(most, len(places))).round().astype(int).tolist())
    names = {place: render_devices(places[place]) for place in sorted(shown)}
    margin = max(map(len, names.values()), default=0) + 2
    columns = max(width - margin - len(_SHARES), _FEWEST)
    edges_s = np.linspace(0.0, timeline.step_s, columns + 1)
    keys, rows, seen = _keys(timeline.table), [" " * (margin + columns) + _SHARES], ""
    for place, pieces in enumerate(all_pieces(timeline)):
        if place in shown:
            row = _row(pieces, keys, edges_s)
            seen += row.cells
            rows.append(names[place].ljust(margin) + row.cells + row.shares)
            rows += [(" " * margin + row.digits).rstrip()] if microbatches else []
    rows += [f"({len(places) - len(shown)} places more)"] if len(shown) < len(places) else []
    axis = " " * margin + "0" + render_duration(timeline.step_s).rjust(columns - 1)
    return "\n".join([*rows, axis, "", *_legend(seen, width)]) + "\n"


def render_devices(devices: Sequence[int]) -> str:
    """Devices by number: a run as its ends, others as the first and how many more."""
    first, last = devices[0], devices[-1]
    if len(devices) == 1:
        return f"device {first}"
    if list(devices) == list(range(first, last + 1)):
        return f"devices {first}-{last}"
    return f"device {first} and {len(devices) - 1} more"


def _keys(table: Table) -> Ints:
    """Of each task its cell and its microbatch's digit, as one number; at the end that of being idle."""
    order = list(CELLS)
    pairs = zip(table.labels, table.causes, strict=True)
    cells = np.array([order.index(cell_of(label, cause)) for label, cause in pairs], np.int32)
    digits = np.where(table.microbatch == ONCE, _DIGITS - 1, table.microbatch % 10)
    return np.append(cells[table.label] * _DIGITS + digits, order.index(_IDLE) * _DIGITS + _DIGITS - 1)


def cell_of(label: str, cause: str) -> str:
    """What a task is drawn as."""
    if cause == STEPS:
        return _STEPS
    phase = label.rpartition(" ")[2]
    return _COMMUNICATION.get(cause) or (phase if phase in CELLS and phase.isupper() else _OTHER)


def _row(pieces: Pieces, keys: Ints, edges_s: Floats) -> _Row:
    """What one place shows."""
    columns = len(edges_s) - 1
    cuts_s = np.union1d(pieces.edges_s, edges_s)
    piece = np.searchsorted(pieces.edges_s, cuts_s[:-1], side="right") - 1
    column = np.searchsorted(edges_s, cuts_s[:-1], side="right") - 1
    index = keys[pieces.task[piece]] * columns + column
    spent = np.bincount(index, np.diff(cuts_s), minlength=len(CELLS) * _DIGITS * columns)
    by_cell = spent.reshape(len(CELLS), _DIGITS, columns)
    cell = by_cell.sum(axis=1).argmax(axis=0)
    digit = by_cell[cell, :, np.arange(columns)].argmax(axis=1)
    return _Row(
        cells="".join(np.array(list(CELLS))[cell]),
        digits="".join(np.array(list("0123456789 "))[digit]),
        shares=_shares(by_cell.sum(axis=(1, 2)) / max(edges_s[-1], _INSTANT)),
    )


def _shares(share: Floats) -> str:
    exposed = sum(each for each, cell in zip(share, CELLS, strict=True) if cell.islower())
    idle = share[list(CELLS).index(_IDLE)]
    return f"{share.sum() - exposed - idle:7.0%}{exposed:9.0%}{idle:6.0%}"


def _legend(seen: str, width: int) -> list[str]:
    """What the cells that are seen mean, in lines of the width."""
    lines = [""]
    for cell, meaning in CELLS.items():
        if cell in seen:
            entry = f"{cell} {'exposed ' if cell.islower() else ''}{meaning}"
            if lines[-1] and len(lines[-1]) + len(entry) + 3 > width:
                lines.append("")
            lines[-1] += ("   " if lines[-1] else "") + entry
    return lines
