"""A configuration of any tool that is known, told apart by what is in it."""

from collections.abc import Callable
from pathlib import Path

from trainwright.errors import BadInput
from trainwright.export.reading.configured import Configured
from trainwright.export.reading.deepspeed import read_deepspeed
from trainwright.export.reading.megatron import read_megatron
from trainwright.export.reading.torchtitan import read_torchtitan

_MOST_BYTES = 10_000_000


def read_text(text: str, source: str, devices: int | None = None) -> Configured:
    """The plan of a configuration, on so many devices if it does not say on how many."""
    return _reader(text, source)(text, source, devices)


def read_file(path: Path, devices: int | None = None) -> Configured:
    """The plan of a file."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise BadInput("configuration", str(path), "is no configuration: too large", "check the path")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not text"
        raise BadInput("configuration", str(path), str(reason), "check the path") from None
    return read_text(text, str(path), devices)


def _reader(text: str, source: str) -> Callable[[str, str, int | None], Configured]:
    if text.lstrip().startswith("{"):
        return read_deepspeed
    megatron = ("--tensor-model-parallel-size", "--num-layers", "--micro-batch-size", "--use-mcore-models")
    if any(name in text.replace("_", "-") for name in megatron):
        return read_megatron
    if any(name in text for name in ("parallelism", "training", "torchtitan")):
        return read_torchtitan
    raise BadInput(
        "configuration", source, "is none of Megatron-LM's flags, torchtitan's settings or DeepSpeed's JSON",
        "name one of these",
    )  # fmt: skip
