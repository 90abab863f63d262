"""The page of the equality suite: which architectures train under which plans as on one process."""

from collections.abc import Iterable, Mapping, Sequence

from tests.architectures.equality_case import EQUAL, PLANS, Verdict
from tests.architectures.subject import Subject

_HEAD = """# Architectures

Written by `make architectures`, which trains every module below under every plan that applies, on real gloo
processes, and compares it with the module itself on one process: three AdamW steps with clipping active.
Losses, the gradient norm and *every* gradient must agree. A gradient agrees if its largest difference is at
most 1e-4 of the largest element of that weight's own gradient, plus 1e-6 of the largest gradient element of
the model (rounding of gradients that are zero in exact arithmetic). Modules are traced with 2 samples, or
with those of a microbatch where an operator depends on their number, and trained with 8, in float32; all
weights start at random values.

`equal` is equal in this sense. `–` does not apply: `cp` to images and experts, `ep` to models without
experts. A number is a refusal, before any training, for the reason of that number below.
"""


def render_page(subjects: Mapping[str, Subject], verdicts: Sequence[Verdict]) -> str:
    """The page, from the verdicts on all architectures."""
    reasons: dict[str, int] = {}
    for each in verdicts:
        if each.result != EQUAL:
            reasons.setdefault(each.detail, len(reasons) + 1)
    by_place = {(each.name, each.plan): each for each in verdicts}
    parts = [
        _HEAD,
        _summary(subjects, verdicts),
        "Plans: " + ", ".join(f"{a} `{b}`" for a, b in PLANS.items()),
    ]
    for kind in dict.fromkeys(each.kind for each in subjects.values()):
        names = [name for name, each in subjects.items() if each.kind == kind]
        parts.append(f"\n## {kind}\n\n" + "\n".join(_table(names, by_place, reasons)))
    parts.append("\n## Reasons\n")
    parts += [f"{number}. {reason}" for reason, number in reasons.items()]
    return "\n".join(parts) + "\n"


def _summary(subjects: Mapping[str, Subject], verdicts: Sequence[Verdict]) -> str:
    refused = {each.name for each in verdicts if each.result != EQUAL}
    whole = len(subjects) - len(refused)
    return (
        f"{len(subjects)} architectures, {len(verdicts)} comparisons: {whole} architectures "
        f"({whole / len(subjects):.0%}) are equal under all plans that apply, the others are "
        "refused under some or all; none is wrong.\n"
    )


def _table(
    names: Iterable[str], verdicts: Mapping[tuple[str, str], Verdict], reasons: Mapping[str, int]
) -> Iterable[str]:
    yield "| architecture | " + " | ".join(PLANS) + " |"
    yield "|---" * (len(PLANS) + 1) + "|"
    for name in names:
        cells = [_cell(verdicts.get((name, plan)), reasons) for plan in PLANS]
        yield f"| {name} | " + " | ".join(cells) + " |"


def _cell(verdict: Verdict | None, reasons: Mapping[str, int]) -> str:
    if verdict is None:
        return "–"
    return EQUAL if verdict.result == EQUAL else f"({reasons[verdict.detail]})"
