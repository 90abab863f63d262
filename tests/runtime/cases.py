"""The runs that PyTorch does and that we predict."""

from dataclasses import dataclass

from trainwright.model.architecture import Architecture


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
