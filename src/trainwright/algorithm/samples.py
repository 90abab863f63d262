"""Samples that a user has: arrays `inputs` and `labels` of a NumPy file."""

from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch

from trainwright.algorithm.experiment import BATCHES, Given
from trainwright.algorithm.network import Batch
from trainwright.algorithm.teacher import Labelled
from trainwright.errors import BadInput

_LEARNED, _HELD = 0.6, 0.2  # shares of the samples: to learn from, and each to choose and to judge by
_LEAST = int(BATCHES["given-mlp"] / _LEARNED) + 1  # samples, so that there is a whole batch to learn from
_REMEDY = "give arrays `inputs` (a row a sample) and `labels` (whole numbers from 0), as np.savez writes them"


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Flat samples and their classes."""

    inputs: torch.Tensor
    labels: torch.Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of a sample, and classes."""
        return self.inputs.shape[1], int(self.labels.max()) + 1

    def divided(self, seed: int) -> Labelled:
        """By chance, and so scaled that those to learn from have the mean 0 and the deviation 1."""
        order = torch.randperm(len(self.labels), generator=torch.Generator().manual_seed(seed))
        train, held = int(_LEARNED * len(order)), int(_HELD * len(order))
        parts = order.split_with_sizes([train, held, len(order) - train - held])
        learned = self.inputs[parts[0]]
        middle, spread = learned.mean(), learned.std().clamp(min=1e-12)
        first, second, third = (Batch((self.inputs[i] - middle) / spread, self.labels[i]) for i in parts)
        return Labelled(train=first, validation=second, test=third)


def given_samples(path: str) -> Given:
    """The samples of a file, which can be read."""
    try:
        digest = sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise BadInput("data", path, f"cannot be read: {error.strerror}", "name a file that can") from None
    found = Given(path=path, digest=digest)
    read_samples(found)
    return found


@cache
def read_samples(given: Given) -> Samples:
    """What the file has."""
    try:
        with np.load(given.path, allow_pickle=False) as arrays:
            inputs, labels = arrays["inputs"], arrays["labels"]
    except (OSError, ValueError, EOFError, KeyError, TypeError, AttributeError, BadZipFile):
        raise BadInput("data", given.path, "has no such arrays", _REMEDY) from None
    return _checked(given.path, inputs, labels)


def _checked(path: str, inputs: np.ndarray, labels: np.ndarray) -> Samples:
    def refuse(rule: str) -> BadInput:
        return BadInput("data", path, rule, _REMEDY)

    if labels.ndim != 1 or len(labels) != len(inputs) or inputs.ndim < 2 or not inputs.size:
        raise refuse(f"has inputs of {inputs.shape} and labels of {labels.shape}")
    if len(labels) < _LEAST:
        raise BadInput("data", path, f"has {len(labels)} samples", f"give at least {_LEAST}")
    if not np.issubdtype(labels.dtype, np.integer) or labels.min() < 0 or labels.max() < 1:
        raise refuse(f"has labels of {labels.dtype} from {labels.min()} to {labels.max()}")
    try:
        flat = inputs.reshape(len(inputs), -1).astype(np.float32)
    except (TypeError, ValueError):
        raise refuse(f"has inputs of {inputs.dtype}") from None
    if not np.isfinite(flat).all():
        raise refuse("has inputs that are not finite")
    return Samples(inputs=torch.from_numpy(flat), labels=torch.from_numpy(labels.astype(np.int64)))
