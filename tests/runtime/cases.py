"""The runs that PyTorch does and that we predict."""

from collections.abc import Iterator
from dataclasses import dataclass

from trainwright.model.architecture import Architecture

MESHES = ((2, 2), (4, 2), (2, 4), (8, 1), (1, 8), (4, 4), (8, 8))  # dp, tp


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run that both sides do: a model, a mesh, and what each device is given."""

    arch: Architecture
    dp: int
    tp: int
    sp: bool = False
    full: bool = False  # layers are recomputed
    seq: int = 64
    batch: int = 2  # samples on each device
    precision: str = "bf16"

    def __str__(self) -> str:
        words = [self.arch.name, f"dp{self.dp}", f"tp{self.tp}", *(["sp"] if self.sp else [])]
        return " ".join([*words, *(["full"] if self.full else []), self.precision])


def llama(layers: int, hidden: int, kv_heads: int = 8) -> Architecture:
    """RMS norms, rotary positions, grouped queries, SwiGLU, a head of its own."""
    return Architecture(
        name="llama", layers=layers, hidden=hidden, heads=16, kv_heads=kv_heads, ffn=4 * hidden, gated=True,
        vocab=2 * hidden,
    )  # fmt: skip


def gpt(layers: int, hidden: int, positions: int) -> Architecture:
    """Layer norms, learned positions, GELU, a bias on every product."""
    return Architecture(
        name="gpt", layers=layers, hidden=hidden, heads=16, vocab=2 * hidden, positions=positions,
        norm="layer", qkv_bias=True, output_bias=True, mlp_bias=True,
    )  # fmt: skip


def collective_cases() -> Iterator[Case]:
    """Both models on every mesh, with and without sequence parallelism; once in fp32.

    Rows of all weights divide by dp·tp: FSDP pads them otherwise.
    """
    for arch in (llama(2, 256), gpt(2, 256, positions=64)):
        for dp, tp in MESHES:
            for sp in (False, True)[: 2 if tp > 1 else 1]:
                yield Case(arch=arch, dp=dp, tp=tp, sp=sp)
        yield Case(arch=arch, dp=2, tp=2, sp=True, precision="fp32")


def memory_cases() -> Iterator[Case]:
    """Both models on every mesh, with and without sequence parallelism and recomputation."""
    for arch in (llama(6, 1024), gpt(6, 1024, positions=1024)):
        for dp, tp in MESHES:
            for sp in (False, True)[: 2 if tp > 1 else 1]:
                for full in (False, True):
                    yield Case(arch=arch, dp=dp, tp=tp, sp=sp, full=full, seq=1024)


def some_memory_cases() -> Iterator[Case]:
    """One for each mesh, plain and with all options in turn, so that tests take a minute."""
    for number, mesh in enumerate(MESHES):
        listed = [case for case in memory_cases() if (case.dp, case.tp) == mesh]
        yield listed[-(number % 2)]
