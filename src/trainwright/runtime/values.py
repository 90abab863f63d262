"""What operations read from a frame, and what they write to it."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from trainwright.runtime.frame import Frame
from trainwright.runtime.operation import Given, Operation, Written


def read(given: Given | None, frame: Frame) -> torch.Tensor:
    """An input, or the part of it that is worked on."""
    assert given is not None
    tensor = frame.given[given.name] if given.name else frame.read(given.candidates)
    for axis, start, length in given.cut:
        tensor = tensor.narrow(axis, start, length)
    return tensor


def incoming(operation: Operation, frame: Frame) -> list[torch.Tensor | None]:
    """The gradient of each result, all contributions added; None where there are none."""
    found: list[torch.Tensor | None] = []
    for contributions in operation.incoming:
        parts = [read(each, frame) for each in contributions]
        total = parts[0] if parts else None
        for part in parts[1:]:
            total = part if total is None else total + part
        found.append(total)
    return found


def held_weights(operation: Operation, frame: Frame) -> dict[str, torch.Tensor]:
    """The weights of an operator on this device, by name."""
    found = {}
    for each in operation.weights:
        tensor = each.parcel.view(frame.weights(each.parcel, operation.sources), each.key)
        for axis, start, length in each.cut:
            tensor = tensor.narrow(axis, start, length)
        found[each.name] = tensor
    return found


def gradient_views(operation: Operation, frame: Frame) -> dict[str, torch.Tensor]:
    """Where the gradients of an operator's weights are added, for those that are its to give."""
    found = {}
    for each in operation.weights:
        if each.counts:
            tensor = each.parcel.view(frame.gradients(each.parcel), each.key)
            for axis, start, length in each.cut:
                tensor = tensor.narrow(axis, start, length)
            found[each.name] = tensor
    return found


def write_all(operation: Operation, frame: Frame, found: Sequence[torch.Tensor]) -> None:
    """Write the results of an operator."""
    for each in operation.writes:
        write(each, frame, found[each.index])


def write(written: Written, frame: Frame, tensor: torch.Tensor) -> None:
    """Write one result; a serial part of a value that is written whole among zeros."""
    for axis, start, length in written.spread:
        after = length - start - tensor.shape[axis]
        if start or after:
            pads = [0, 0] * (tensor.dim() - 1 - axis) + [start, after]
            tensor = F.pad(tensor, pads)
    frame.write(written.value, tensor)
