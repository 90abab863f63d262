"""Command-line flags, as one reads and writes them in scripts."""

import shlex
from collections.abc import Iterable, Sequence

Flag = tuple[str, ...]  # its name, then its values
# What PyTorch's allocator needs where segments of many sizes would leave gaps: NVIDIA's recipes set it.
ALLOCATOR_NAME, ALLOCATOR_VALUE = "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"
ALLOCATOR = f"{ALLOCATOR_NAME}={ALLOCATOR_VALUE}"


def flag(name: str, *values: object) -> Flag:
    """A flag with its values as text."""
    return (name, *(str(value) for value in values))


def render_array(name: str, flags: Iterable[Flag]) -> str:
    """A bash array of flags, one on each line."""
    lines = "".join(f"    {shlex.join(each)}\n" for each in flags)
    return f"{name}=(\n{lines})\n"


def comment(lines: Iterable[str], mark: str = "#") -> str:
    """Lines of comment; one that has line ends becomes several."""
    return "".join(f"{mark} {part}\n" for line in lines for part in line.splitlines() or [""])


def torchrun_words(nodes: int, per_node: int, program: Sequence[str]) -> list[str]:
    """torchrun on each node, meeting at MASTER_ADDR:MASTER_PORT; words with a $ are for bash to expand."""
    return [
        "torchrun", f"--nnodes={nodes}", f"--nproc-per-node={per_node}", '--node-rank="${NODE_RANK}"',
        '--master-addr="${MASTER_ADDR}"', '--master-port="${MASTER_PORT}"', *program,
    ]  # fmt: skip


def render_command(words: Sequence[str]) -> str:
    """A command over several lines."""
    return " \\\n    ".join(words) + "\n"
