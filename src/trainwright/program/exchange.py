"""The general move between any two layouts: each device fetches what it lacks, message by message."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from trainwright.program.layout import Layout, region, share
from trainwright.program.moves import Move
from trainwright.program.network import Network, levels_between, send_lines

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def build_exchange(
    source: Layout, target: Layout, dims: Mapping[str, int], element_bytes: float, network: Network
) -> Move:
    """The exchange between two layouts; it takes as long as the device that sends or receives longest.

    Its messages are started together, as those of an all-to-all: the latency is paid once.
    """
    cells = _cells(source, dims)
    volumes = _overlaps(source, target, dims, [copies[0] for copies in cells]) * element_bytes
    senders = _senders(source, target, cells)
    receivers = np.array(target.mesh.devices)[:, None]
    levels = levels_between(network, network.places(senders), network.places(receivers))
    lines = np.array(send_lines(network))
    moved = (volumes > 0) & (levels > 0)
    seconds = np.where(moved, lines[levels, 1] * volumes, 0.0)
    order = {device: index for index, device in enumerate(source.mesh.devices)}
    ranks = np.array([[order[device] for device in row] for row in senders.tolist()])
    count = len(source.mesh.devices)
    sent = np.bincount(ranks.ravel(), np.where(moved, volumes, 0.0).ravel(), minlength=count)
    sending_s = np.bincount(ranks.ravel(), seconds.ravel(), minlength=count)
    return Move(
        kind="exchange",
        source=source,
        target=target,
        axes=(),
        sent_bytes=float(sent.max()),
        seconds=_latency_s(network, np.where(moved, levels, 0), source, target)
        + float(max(sending_s.max(), seconds.sum(axis=1).max())),
    )


def _latency_s(network: Network, levels: Ints, source: Layout, target: Layout) -> float:
    """What an exchange over these levels takes without bytes: one message, or an all-to-all of them."""
    if not levels.any():
        return 0.0
    if (levels > 0).sum() == 1:
        return float(send_lines(network)[levels.max()][0])
    devices = sorted({*source.mesh.devices, *target.mesh.devices})
    return network.seconds("all_to_all", [devices], 0.0)


def exchange_messages(
    source: Layout, target: Layout, dims: Mapping[str, int], element_bytes: float
) -> list[tuple[int, int, float]]:
    """The messages of an exchange: who sends, to whom, how many bytes."""
    cells = _cells(source, dims)
    volumes = _overlaps(source, target, dims, [copies[0] for copies in cells]) * element_bytes
    senders = _senders(source, target, cells)
    return [
        (int(senders[row, column]), device, float(volumes[row, column]))
        for row, device in enumerate(target.mesh.devices)
        for column in range(len(cells))
        if volumes[row, column] > 0 and int(senders[row, column]) != device
    ]


def _cells(layout: Layout, dims: Mapping[str, int]) -> list[list[int]]:
    """Ranks by what they hold: those in one list hold the same part and share."""
    found: dict[object, list[int]] = {}
    for rank in range(len(layout.mesh.devices)):
        key = (tuple(region(layout, dims, rank).values()), share(layout, rank))
        found.setdefault(key, []).append(rank)
    return list(found.values())


def _overlaps(source: Layout, target: Layout, dims: Mapping[str, int], ranks: list[int]) -> Floats:
    """Elements that each device of the target wants of the part that each of `ranks` holds."""
    held = [region(source, dims, rank) for rank in ranks]
    wanted = [region(target, dims, rank) for rank in range(len(target.mesh.devices))]
    # The sum of shared values goes to the first share; the others hold zeros.
    first = [share(target, rank)[0] == 0 for rank in range(len(wanted))]
    found = np.repeat(np.array(first, dtype=float)[:, None], len(ranks), axis=1)
    for dim in dims:
        low, high = np.array([each[dim] for each in held]).T
        least, most = np.array([each[dim] for each in wanted]).T
        found *= np.maximum(np.minimum(high, most[:, None]) - np.maximum(low, least[:, None]), 0)
    return found


def _senders(source: Layout, target: Layout, cells: list[list[int]]) -> Ints:
    """Who sends each part to each device of the target: itself, or in turns those that hold it."""
    devices = source.mesh.devices
    found = np.empty((len(target.mesh.devices), len(cells)), dtype=np.int64)
    turn = np.arange(len(found))
    for column, copies in enumerate(cells):
        found[:, column] = np.array([devices[rank] for rank in copies])[turn % len(copies)]
    own = {devices[rank]: column for column, copies in enumerate(cells) for rank in copies}
    for row, device in enumerate(target.mesh.devices):
        if device in own:
            found[row, own[device]] = device
    return found
