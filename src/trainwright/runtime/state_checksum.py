"""Checksums in files of weights: SHA-256 of tensors in safetensors, CRC-32 of records in .pt files."""

import hashlib
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch

from trainwright.errors import BadInput

_KEY = "trainwright.sha256"  # of the metadata: an object of checksums by name, as text


def describe_state(state: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """The metadata of a safetensors file that is written for these tensors."""
    return {"format": "pt", _KEY: json.dumps({name: _digest(tensor) for name, tensor in state.items()})}


def check_state(path: Path, metadata: Mapping[str, str], state: Mapping[str, torch.Tensor]) -> None:
    """Raise for the first tensor that is not as it was written; other programs state no checksums."""
    for name, stated in json.loads(metadata.get(_KEY, "{}")).items():
        if name not in state or _digest(state[name]) != stated:
            raise _changed(path, f"weight {name}")


def check_zip(path: Path) -> None:
    """Raise for the first record of a .pt file that is not as it was written; an old one is no zip file."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as file:
            damaged = file.testzip()
        if damaged is not None:
            raise _changed(path, f"record {damaged}")


def _digest(tensor: torch.Tensor) -> str:
    """The checksum of a tensor: type, shape and bytes."""
    whole = hashlib.sha256(f"{tensor.dtype} {list(tensor.shape)} ".encode())
    whole.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)
    return whole.hexdigest()


def _changed(path: Path, what: str) -> BadInput:
    rule = f"was edited or damaged since it was written: the checksum of {what} differs"
    remedy = "export it again; if another program has changed it, have it write no metadata of before"
    return BadInput("--from", str(path), rule, remedy)
