"""What one device holds of one microbatch."""

from dataclasses import dataclass, field
from typing import Any

import torch

from trainwright.program.step import Value
from trainwright.runtime.parcels import Parcel
from trainwright.runtime.ring import Round
from trainwright.runtime.transfer import Arrival

Cell = tuple[int, int]  # an operator, and which of its serial parts


@dataclass(slots=True)
class Frame:
    """Values, what is on its way, and what backwards were left by forwards."""

    microbatch: int
    given: dict[str, torch.Tensor]
    targets: dict[str, torch.Tensor]
    values: dict[Value, torch.Tensor] = field(default_factory=dict)
    arriving: dict[Value, list[Arrival]] = field(default_factory=dict)
    seen: set[Value] = field(default_factory=set)  # read since they were written
    reads_left: dict[Value, int] = field(default_factory=dict)
    contexts: dict[Cell, Any] = field(default_factory=dict)
    gathered: dict[str, dict[tuple[str, ...], Arrival | torch.Tensor]] = field(default_factory=dict)
    fresh: dict[tuple[str, ...], torch.Tensor] = field(default_factory=dict)  # gradients to be scattered
    host: dict[Value, torch.Tensor] = field(default_factory=dict)
    routes: dict[str, torch.Tensor] = field(default_factory=dict)  # by block, the experts of all tokens
    rows: dict[tuple[object, ...], torch.Tensor] = field(default_factory=dict)
    shares: dict[str, torch.Tensor] = field(default_factory=dict)  # by block, the probability of each row
    share_gradients: dict[str, torch.Tensor] = field(default_factory=dict)
    rounds: dict[int, Round] = field(default_factory=dict)  # of keys and values, by attention
    homing: dict[int, Arrival] = field(default_factory=dict)  # gradients of keys and values, by attention

    def write(self, value: Value, tensor: torch.Tensor) -> None:
        """Hold a value; more of it, if it was not read since it was written."""
        if value in self.seen:
            self.seen.discard(value)
            self.values.pop(value, None)
        held = self.values.get(value)
        self.values[value] = tensor if held is None else held + tensor

    def arrive(self, value: Value, arrival: Arrival) -> None:
        """Expect a value, or more of it."""
        if value in self.seen:
            self.seen.discard(value)
            self.values.pop(value, None)
        self.arriving.setdefault(value, []).append(arrival)

    def read(self, candidates: tuple[Value, ...]) -> torch.Tensor:
        """A value: the sum of what was written under its name and what lies the same in other layouts."""
        total: torch.Tensor | None = None
        for value in candidates:
            for arrival in self.arriving.pop(value, ()):
                came = arrival.wait()
                if came is not None:
                    self.write(value, came)
            held = self.values.get(value)
            if held is not None:
                self.seen.add(value)
                total = held if total is None else total + held
        assert total is not None, f"{candidates[0].name} is read before it is made"
        return total

    def release(self, value: Value) -> None:
        """Forget a value once nothing will read it."""
        left = self.reads_left.get(value, 1) - 1
        self.reads_left[value] = left
        if left <= 0:
            self.values.pop(value, None)
            self.gathered.pop(value.name, None)

    def weights(self, parcel: Parcel, sources: tuple[str, ...]) -> torch.Tensor:
        """The whole flat tensor of a parcel: as gathered under one of some names, or as it is held."""
        for name in sources:
            found = self.gathered.get(name, {}).get(parcel.key)
            if isinstance(found, Arrival):
                came = found.wait()
                assert came is not None
                self.gathered[name][parcel.key] = found = came
            if found is not None:
                return found
        assert not parcel.shards_weights, f"{parcel.key} is used before it is gathered"
        return parcel.weights

    def gradients(self, parcel: Parcel) -> torch.Tensor:
        """The flat tensor to which gradients of a parcel are added."""
        if not parcel.shards_gradients:
            return parcel.gradients
        if parcel.key not in self.fresh:
            self.fresh[parcel.key] = parcel.gradients.new_zeros(parcel.size)
        return self.fresh[parcel.key]
