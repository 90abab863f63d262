"""The time of a kernel from what was measured: interpolated between shapes, or projected from one layer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trainwright.cluster.types import Device
from trainwright.cost.profile import ATTENTIONS, PRODUCTS, Kernel, Profile, work_amount
from trainwright.errors import BadInput

Array = NDArray[np.float64]
_STAND_INS = {
    "rms_norm": "norm", "swiglu": "gelu", "rope": "add", "permute": "gather", "gather": "add", "loss": "norm",
    "optimizer": "copy", "copy": "add", "unfused": "attention", "attention": "unfused", "norm": "add",
    "gelu": "add", "add": "norm",
}  # fmt: skip  # what a work is timed as that was not measured


@dataclass(frozen=True, slots=True)
class Curves:
    """Of each work, where it was measured (logarithms of sizes) and its logarithm of seconds a unit there."""

    sizes: Mapping[str, Array]
    rates: Mapping[str, Array]


class Model(Protocol):
    """A way from measured kernels to the time of another."""

    def seconds(self, work: str, sizes: Sequence[Array]) -> Array:
        """Of a kernel of a work that was measured, at any sizes."""
        ...


@dataclass(frozen=True, eq=False, kw_only=True)
class Kernels:
    """The operator model of a machine: one way from a profile to times.

    The rates are the profiled device's: on one with others, times change in proportion.
    """

    name: str  # profiled or projected
    profile: Profile
    model: Model
    flops_per_s: float
    memory_bytes_per_s: float
    times: float = 1.0  # longer, of everything: a core has to serve several devices
    _known: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_known", frozenset(each.work for each in self.profile.kernels))

    def seconds(self, work: str, *sizes: Array) -> Array:
        """The time of a kernel, or of the one nearest in kind that was measured, by the work that is done."""
        named = self.stand_in(work)
        shapes = np.broadcast_arrays(*sizes)
        more = work_amount(work, shapes) / work_amount(named, shapes) if named != work else 1.0
        return np.asarray(self.times * more * self.model.seconds(named, shapes))

    def on(self, flops_per_s: float, memory_bytes_per_s: float, work: str) -> float:
        """How many times as long a work takes on a device of other rates."""
        if work in PRODUCTS or work in ATTENTIONS:
            return self.flops_per_s / flops_per_s
        return self.memory_bytes_per_s / memory_bytes_per_s

    def stand_in(self, work: str) -> str:
        """The measured work that a work is timed as: itself, if it was measured; else one of its class."""
        name, dot, way = work.partition(".")
        tried: list[str] = []
        while name and name not in tried:
            others = [f"{name}.{each}" for each in ("forward", "data", "weight", "backward")]
            for each in (f"{name}{dot}{way}", *others, name):
                if each in self._known:
                    return each
            tried.append(name)
            name = _STAND_INS.get(name, "")
        raise BadInput(
            "profile", work, "was not measured, nor anything like it", "run trainwright profile for longer"
        )

    def slowed(self, times: float) -> "Kernels":
        """The same where everything takes so many times as long."""
        return replace(self, times=self.times * times)


@dataclass(frozen=True, eq=False, slots=True)
class Interpolated:
    """Seconds a unit of work, between measured shapes: by nearness on a logarithmic scale."""

    curves: Curves

    def seconds(self, work: str, sizes: Sequence[Array]) -> Array:
        """Weights fall with the fourth power of the distance; beyond the ends the nearest shape decides."""
        places, rates = self.curves.sizes[work], self.curves.rates[work]
        amount = work_amount(work, sizes)
        if places.shape[1] == 1:
            order = np.argsort(places[:, 0])
            return np.asarray(
                amount * np.exp(np.interp(np.log(sizes[0]), places[order, 0], rates[order])), dtype=float
            )
        asked = np.stack([np.log(np.maximum(each, 1.0)) for each in sizes], axis=-1)
        distance = ((asked[..., None, :] - places) ** 2).sum(axis=-1)
        weights = 1.0 / (distance + 1e-6) ** 2
        return np.asarray(amount * np.exp((weights * rates).sum(axis=-1) / weights.sum(axis=-1)), dtype=float)


@dataclass(frozen=True, eq=False, slots=True)
class Scaled:
    """Times in proportion to the work: from the operator of the baseline layer that is shaped most alike.

    So a product grows linearly with tokens and quadratically with width, attention quadratically with
    length, the rest with the bytes that it moves. Where the layer was also measured with few tokens, that is
    the time of a start, and what is above it grows.
    """

    curves: Curves

    def seconds(self, work: str, sizes: Sequence[Array]) -> Array:
        """From the nearest in shape, whatever its size, or on the line from the start to the layer."""
        places, rates = self.curves.sizes[work], self.curves.rates[work]
        amount = work_amount(work, sizes)
        if work not in PRODUCTS:
            return _on_line(work, places, rates, amount)
        asked = np.stack([np.log(np.maximum(each, 1.0)) for each in sizes], axis=-1)
        aspects = asked[..., 1:] - asked[..., 1:].mean(axis=-1, keepdims=True)
        known = places[:, 1:] - places[:, 1:].mean(axis=-1, keepdims=True)
        distance = ((aspects[..., None, :] - known) ** 2).sum(axis=-1)
        # Of several that are shaped alike, the one whose size is nearest.
        distance = 1e3 * np.round(distance, 6) + ((asked[..., None, :] - places) ** 2).sum(axis=-1)
        return np.asarray(amount * np.exp(rates[distance.argmin(axis=-1)]), dtype=float)


def _on_line(work: str, places: Array, rates: Array, amount: Array) -> Array:
    amounts = np.array([work_amount(work, each) for each in np.exp(places)])
    seconds = amounts * np.exp(rates)
    low, high = amounts.argmin(), amounts.argmax()
    slope = seconds[high] / amounts[high]
    if low == high or seconds[low] >= seconds[high]:
        return np.asarray(amount * slope, dtype=float)
    slope = (seconds[high] - seconds[low]) / (amounts[high] - amounts[low])
    start_s = max(seconds[low] - slope * amounts[low], 0.0)
    return np.asarray(start_s + slope * amount, dtype=float)


def build_kernels(name: str, profile: Profile, device: Device) -> Kernels:
    """The operator model of this name, from a profile of a device."""
    if name == "projected":
        profile = replace(profile, kernels=tuple(each for each in profile.kernels if each.region))
    if not profile.kernels:
        raise BadInput("profile", device.name, "has no kernels", "run trainwright profile again")
    curves = _curves(profile.kernels)
    return Kernels(
        name=name, profile=profile, model=Scaled(curves) if name == "projected" else Interpolated(curves),
        flops_per_s=device.peak(profile.dtype), memory_bytes_per_s=device.memory[0].bytes_per_s,
    )  # fmt: skip


def _curves(kernels: Sequence[Kernel]) -> Curves:
    works = {each.work for each in kernels}
    sizes = {work: np.log([each.sizes for each in kernels if each.work == work]) for work in works}
    rates = {
        work: np.log([each.seconds / each.amount for each in kernels if each.work == work]) for work in works
    }
    return Curves(sizes=sizes, rates=rates)
