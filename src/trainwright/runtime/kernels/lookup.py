"""Rows of tables: embeddings of tokens and positions, biases by distance."""

import torch
import torch.nn.functional as F

from trainwright.errors import BadInput
from trainwright.model.graph import Tensor
from trainwright.runtime.work import Work


def look_up(work: Work) -> tuple[torch.Tensor, ...]:
    """The sum of the rows that each place takes; of a part of a table, zeros for rows that are elsewhere."""
    op = work.op
    if op.name.endswith("bias") and "offsets" in op.inputs[0].dims:
        return (_by_offset(work),)
    if op.name == "single.row":
        return (work.inputs[0].select(op.inputs[0].dims.index("rows"), 0),)
    if not op.inputs:
        return (_by_distance(work),)
    total: torch.Tensor | None = None
    for table in op.weights:
        found = _rows(work, table)
        if not work.adds.get(table.name, True):
            found = found - found.detach()  # another device adds it; all give its gradient
        total = found if total is None else total + found
    assert total is not None
    return (total.expand([work.length(dim) for dim in op.output.dims]),)


def _rows(work: Work, table: Tensor) -> torch.Tensor:
    tokens, weight, first = work.inputs[0], work.weights[table.name], work.at[table.dims[0]][0]
    if table.dims[0] == "positions":
        tokens = torch.arange(*work.at["seq"], device=weight.device)
    elif table.dims[0] != "vocab":
        return weight[:1] if first == 0 else torch.zeros_like(weight[:1])
    if work.length(table.dims[0]) == work.sizes[table.dims[0]]:
        return F.embedding(tokens, weight)
    here = (tokens >= first) & (tokens < first + weight.shape[0])
    return F.embedding((tokens - first) * here, weight) * here.unsqueeze(-1)


def _by_distance(work: Work) -> torch.Tensor:
    """A row for each pair of places by their distance, cut off where the table ends."""
    (weight,), (table,) = work.weights.values(), work.op.weights
    rows = work.sizes[table.dims[0]]
    if work.length(table.dims[0]) < rows:
        raise BadInput(f"op {work.op.name}", table.dims[0], "is looked up by distance", "keep it whole")
    dims = work.op.output.dims
    left, right = (torch.arange(*work.at[dim], device=weight.device) for dim in dims if dim.startswith("seq"))
    distance = (left[:, None] - right[None, :] + rows // 2).clamp(0, rows - 1)
    found = weight[distance]  # places, places, width
    return found if dims[-1] == table.dims[1] else found.movedim(-1, 0)


def _by_offset(work: Work) -> torch.Tensor:
    """For each pair of places in a square window, the row of the offset between them."""
    table, area = work.inputs[0], work.sizes["area"]
    side = round(area**0.5)
    row, column = torch.arange(area) // side, torch.arange(area) % side
    down, right = (each[:, None] - each[None, :] + side - 1 for each in (row, column))
    pairs = (down * (2 * side - 1) + right).to(table.device)
    return 16.0 * torch.sigmoid(table[pairs]).movedim(-1, 0)
