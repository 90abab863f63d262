"""The collectives and the memory of a step as PyTorch does it and as we predict it, side by side.

    python benchmarks/against_torch.py > tables.md

Needs torch, no accelerator: PyTorch runs on fake tensors in a fake process group. Takes some minutes.
"""

import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the cases are those of the tests

from tests.runtime.cases import Case, collective_cases, memory_cases
from tests.runtime.measured import measure_collectives, measure_loss, measure_memory
from tests.runtime.predicted import predict_as_issued, predict_collectives, predict_memory

KINDS = ("all_gather", "reduce_scatter", "all_reduce")
CATEGORIES = ("all", "activations", "weights", "gradients")


def collective_row(case: Case) -> list[str]:
    """Of each kind, how many there are and of how many kB: PyTorch's, ours; then whether all are equal."""
    found, ours = measure_collectives(case).collectives, predict_collectives(case)
    cells = []
    for kind in KINDS:
        theirs, own = ([size for name, size in listed if name == kind] for listed in (found, ours))
        cells += [f"{len(theirs)} / {len(own)}", f"{sum(theirs) / 1e3:.1f} / {sum(own) / 1e3:.1f}"]
    return [str(case), *cells, "yes" if Counter(found) == Counter(predict_as_issued(case)) else "NO"]


def memory_row(case: Case) -> list[str]:
    """Of each category, the most MB of PyTorch's and of ours, and how far ours is off."""
    found, ours = measure_memory(case), predict_memory(case, measure_loss(case))
    return [str(case), *(_compared(found, ours, name) for name in CATEGORIES)]


def _compared(found: Mapping[str, float], ours: Mapping[str, float], name: str) -> str:
    off = ours[name] / found[name] - 1.0
    return f"{found[name] / 1e6:.1f} / {ours[name] / 1e6:.1f} ({off:+.1%})"


def show(header: Iterable[str], rows: Iterable[list[str]]) -> None:
    """Print a table row by row."""
    names = list(header)
    print("| " + " | ".join(names) + " |")
    print("|" + "---|" * len(names))
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)
    print()


def main() -> None:
    """Print both tables."""
    warnings.filterwarnings("ignore", category=UserWarning)
    print("## Collectives of a step on each device: PyTorch / ours\n")
    columns = [f"{kind.replace('_', '-')}{unit}" for kind in KINDS for unit in ("s", ", kB")]
    show(["case", *columns, "equal"], map(collective_row, collective_cases()))
    print("## Most MB on a device: PyTorch / ours\n")
    show(["case", *CATEGORIES], map(memory_row, memory_cases()))


if __name__ == "__main__":
    main()
