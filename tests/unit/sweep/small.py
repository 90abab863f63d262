"""A small sweep for tests: some clusters of eight devices, a hundred strategies on each."""

from pathlib import Path

from trainwright.sweep.load import parse_sweep
from trainwright.sweep.types import Sweep

TEXT = """
name = "small"
model = "llama3-8b"
cluster = "h100:8"
batch = 16
seq = 2048
search = "every"
chunk = 3
[strategy]
cp = 1
micro_batch = [1, 2]
offload = "none"
schedule = "1f1b"
[[axis]]
field = "cluster.device.memory.0.capacity"
name = "capacity"
values = ["20 GB", "80 GB", "160 GB"]
[[axis]]
field = "compute"
ratio = [1, 2]
[[axis]]
field = "cluster.levels.0.bandwidth"
name = "inner"
log = { from = "100 GB/s", to = "400 GB/s", factor = 2 }
"""


def small_sweep(more: str = "", **words: str) -> Sweep:
    """The small sweep with lines before its tables, or with words changed."""
    text = more + TEXT
    for old, new in words.items():
        assert old in text
        text = text.replace(old, new)
    return parse_sweep(text, "small")


def changed(old: str, new: str, more: str = "") -> Sweep:
    """The small sweep with one piece of its text replaced."""
    assert old in TEXT
    return parse_sweep(more + TEXT.replace(old, new), "small")


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
