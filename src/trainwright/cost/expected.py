"""How far off times from a profile are, judged by what else the same profile holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from trainwright.cluster.types import Device
from trainwright.cost.kernels import build_kernels
from trainwright.cost.profile import ATTENTIONS, PRODUCTS, Collective, Kernel, Profile
from trainwright.cost.table import build_table

_ENOUGH = 4  # shapes of a work, for one of them to be judged by the others


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Relative errors against measurements that a prediction did not use, one for each."""

    errors: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one; without any, not known."""
        return median(self.errors) if self.errors else float("nan")


def projection_errors(profile: Profile, device: Device) -> Mapping[str, Expected]:
    """By class: kernels outside the baseline layer, projected from it, against their own measurement."""
    projected = build_kernels("projected", profile, device)
    found: dict[str, list[float]] = {"products": [], "attention": [], "streams": []}
    for each in profile.kernels:
        if not each.region:
            seconds = float(projected.seconds(each.work, *map(np.array, each.sizes)))
            found[_class(each)].append(abs(seconds / each.seconds - 1.0))
    return {name: Expected(errors=tuple(errors)) for name, errors in found.items()}


def interpolation_errors(profile: Profile, device: Device) -> Expected:
    """Kernels left out one at a time, interpolated between the others of their work."""
    errors = []
    for work in sorted({each.work for each in profile.kernels}):
        of_work = [each for each in profile.kernels if each.work == work]
        for each in of_work if len(of_work) >= _ENOUGH else ():
            others = replace(profile, kernels=tuple(other for other in of_work if other != each))
            kernels = build_kernels("profiled", others, device)
            seconds = float(kernels.seconds(work, *map(np.array, each.sizes)))
            errors.append(abs(seconds / each.seconds - 1.0))
    return Expected(errors=tuple(errors))


def collective_errors(collectives: Sequence[Collective]) -> Expected:
    """Sizes left out one at a time, but the smallest and the largest, from the curve of the others."""
    errors = []
    for kind, members in sorted({(each.kind, each.members) for each in collectives}):
        curve = sorted(
            (each for each in collectives if (each.kind, each.members) == (kind, members)),
            key=lambda each: each.size_bytes,
        )
        for each in curve[1:-1]:
            table = build_table([other for other in curve if other is not each])
            assert table is not None
            seconds = float(table.seconds(kind, np.array(float(members)), np.array(each.size_bytes)))
            errors.append(abs(seconds / each.seconds - 1.0))
    return Expected(errors=tuple(errors))


def render_expected(name: str, profile: Profile, device: Device) -> str:
    """In words, what error to expect of kernels and collectives, and of how many measurements."""
    if name == "profiled":
        found = interpolation_errors(profile, device)
        parts = [f"kernels {found.median:.0%} ({len(found.errors)} left out)"] if found.errors else []
    else:
        parts = [
            f"{kind} {each.median:.0%} ({len(each.errors)} other shapes)"
            for kind, each in projection_errors(profile, device).items()
            if each.errors
        ]
    curve = collective_errors(profile.collectives)
    if curve.errors:
        parts.append(f"collectives {curve.median:.0%} ({len(curve.errors)} left out)")
    return (
        f"Expected error, {name}: {', '.join(parts)}." if parts else "No measurement is left to judge it by."
    )


def _class(kernel: Kernel) -> str:
    return "products" if kernel.work in PRODUCTS else "attention" if kernel.work in ATTENTIONS else "streams"
