"""Whole weights in one file, by key: a state_dict of PyTorch, or safetensors."""

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import torch
import torch.distributed as dist
from torch import nn

from trainwright.errors import BadInput
from trainwright.output_file import open_output
from trainwright.runtime.state_checksum import check_state, check_zip, describe_state
from trainwright.runtime.trainer import Trainer
from trainwright.runtime.whole import Initial

State = Mapping[str, torch.Tensor]
_LENGTH = struct.Struct("<Q")  # of the header of a safetensors file, at its start
_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
    "BOOL": torch.bool, "C64": torch.complex64,
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
SUFFIXES = (".safetensors", ".pt")


def check_suffix(path: Path, option: str) -> None:
    """Raise for a file whose name does not say what it is."""
    if path.suffix not in SUFFIXES:
        raise BadInput(option, str(path), "is of no format that is known", "name it .safetensors or .pt")


def save_state(path: Path, trainer: Trainer, stored: Callable[[State], State] = dict) -> None:
    """Write all weights in full precision; every process gives what it has, and the first one writes.

    `stored` is what the file has, from the weights by their keys.
    """
    found: dict[str, torch.Tensor] = {}
    for key in _all_keys(trainer):
        listed: list[Any] | None = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
        dist.gather_object(_part(trainer, key), listed)
        for part in listed or ():
            if part is not None:
                _place(found, key, *part)
    problem = [_attempt(path, stored(found)) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(problem, src=0)
    if problem[0] is not None:
        raise BadInput("--export", str(path), f"cannot be written ({problem[0]})", "name another file")


def save_values(path: Path, state: State) -> None:
    """Write weights that this process has."""
    problem = _attempt(path, state)
    if problem is not None:
        raise BadInput("--export", str(path), f"cannot be written ({problem})", "name another file")


def _all_keys(trainer: Trainer) -> Sequence[str]:
    listed: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(listed, list(trainer.pieces))
    return sorted({key for each in listed for key in each})


def _part(trainer: Trainer, key: str) -> tuple[Any, ...] | None:
    """What this process has of a weight: sizes of the whole, the box, and which of its elements."""
    if key not in trainer.pieces:
        return None
    slot, first, last, values = trainer.pieces[key]
    return slot.sizes, tuple(slot.region.values()), first, last, values.detach().cpu()


def _place(
    found: dict[str, torch.Tensor],
    key: str,
    sizes: Sequence[int],
    box: Sequence[tuple[int, int]],
    first: int,
    last: int,
    values: torch.Tensor,
) -> None:
    whole = found.setdefault(key, torch.zeros(tuple(sizes)))
    view = whole[tuple(slice(low, high) for low, high in box)]
    flat = view.reshape(-1)  # a copy, unless the box is whole rows
    flat[first:last] = values
    view.copy_(flat.view(view.shape))


def _attempt(path: Path, state: State) -> str | None:
    """Write a file; why that failed, if it did."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_output(path) as file:
            _WRITERS[path.suffix](file, state)
    except (OSError, RuntimeError) as error:
        return str(getattr(error, "strerror", None) or error).partition("\n")[0]
    return None


def _write_safetensors(file: BinaryIO, state: State) -> None:
    """The format: the length of a header, the header as JSON, then all tensors, one after another."""
    header: dict[str, Any] = {"__metadata__": describe_state(state)}
    at = 0
    listed = sorted(state.items(), key=lambda each: -each[1].element_size())  # so that all are aligned
    for key, tensor in listed:
        size = tensor.numel() * tensor.element_size()
        name = _NAMES[tensor.dtype]
        header[key] = {"dtype": name, "shape": list(tensor.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(_LENGTH.pack(len(text)) + text)
    for _, tensor in listed:
        file.write(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())


def _write_pt(file: BinaryIO, state: State) -> None:
    torch.save(dict(state), file)


_WRITERS: Mapping[str, Callable[[BinaryIO, State], None]] = {
    ".safetensors": _write_safetensors,
    ".pt": _write_pt,
}


def read_state(path: Path) -> State:
    """The tensors of a file, by name."""
    try:
        return _read_safetensors(path) if path.suffix == ".safetensors" else _read_pt(path)
    except BadInput:
        raise
    except OSError as error:
        raise BadInput("--from", str(path), f"cannot be read ({error.strerror})", "check the path") from None
    except Exception:  # of many kinds, for a file that is something else
        raise BadInput(
            "--from", str(path), f"is no {path.suffix} file of weights", "export it anew"
        ) from None


def load_state(path: Path) -> Initial:
    """The first values of weights, from a file."""
    state = read_state(path)

    def initial(key: str, sizes: Sequence[int]) -> torch.Tensor:
        return _of_size(path, state, key, sizes).float()

    return initial


def fill_module(module: nn.Module, path: Path) -> None:
    """Take over weights and buffers from a file, under the module's own names for them.

    Of the names of a weight that is tied, one is enough; buffers may be left out.
    """
    state = read_state(path)
    named = list(module.named_parameters(remove_duplicate=False))
    there = {id(parameter) for name, parameter in named if name in state}
    for name in (name for name, parameter in named if id(parameter) not in there):
        raise _without(path, state, name)
    for name, own in module.state_dict().items():
        if name in state and isinstance(own, torch.Tensor):
            own.copy_(_of_size(path, state, name, own.shape))


def _of_size(path: Path, state: State, key: str, sizes: Sequence[int]) -> torch.Tensor:
    """A weight of a file, if it is there and of the right size."""
    if key not in state:
        raise _without(path, state, key)
    if tuple(state[key].shape) != tuple(sizes):
        rule = f"{key} is {list(state[key].shape)}, and the model's is {list(sizes)}"
        raise BadInput("--from", str(path), rule, "use a file of this model")
    return state[key]


def _without(path: Path, state: State, key: str) -> BadInput:
    rule = f"has no weight {key}; it has {', '.join(sorted(state)[:3])} and so on"
    return BadInput("--from", str(path), rule, "use a file of this model")


def _read_pt(path: Path) -> State:
    check_zip(path)
    found = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    return {str(key): value for key, value in found.items() if isinstance(value, torch.Tensor)}


def _read_safetensors(path: Path) -> State:
    with path.open("rb") as file:
        (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
        header = json.loads(file.read(length))
    metadata = header.pop("__metadata__", {})
    size = max((each["data_offsets"][1] for each in header.values()), default=0)
    start = _LENGTH.size + length
    whole = torch.from_file(str(path), shared=False, size=start + size, dtype=torch.uint8)
    state = {key: _tensor(whole[start:], each) for key, each in header.items()}
    check_state(path, metadata, state)
    return state


def _tensor(data: torch.Tensor, entry: Mapping[str, Any]) -> torch.Tensor:
    low, high = entry["data_offsets"]
    part = data[low:high].clone()  # aligned, which the file need not be
    return part.view(_DTYPES[entry["dtype"]]).view(entry["shape"])
