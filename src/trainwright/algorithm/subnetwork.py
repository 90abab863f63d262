"""A worker of independent subnetwork training: its home, its slice, and how both are exchanged."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from trainwright.algorithm.exact import ExactMember
from trainwright.algorithm.local import Local
from trainwright.algorithm.merge import rescale
from trainwright.algorithm.network import Batch
from trainwright.algorithm.partition import Cut, Indices, flat_places, held_sizes, home_range, starts
from trainwright.algorithm.protocol import Seat, Talk, Values
from trainwright.algorithm.rounds import Rounds, Scale
from trainwright.algorithm.talk import Exchange, Gather, Sum


class IstMember:
    """Holds 1/n of the divided weights at home, and while it trains apart, a slice and the shared weights."""

    def __init__(self, cut: Cut, rounds: Rounds, scale: Scale, start: Local, seat: Seat) -> None:
        self.cut, self.rounds, self.scale, self.seat = cut, rounds, scale, seat
        self.network, self.learning, self.anatomy = start.network, start.learning, cut.anatomy
        self.divided, self.common = self.anatomy.partitioned, self.anatomy.shared
        self.elements = starts(self.divided)[-1]
        self.whole_model: ExactMember | None = None  # while the whole model is trained
        self.local: Local | None = None  # while a slice is
        self.round = rounds.number(seat.first)
        self.due = False  # whether the next slice has yet to be fetched
        self.last: Batch | None = None
        self.home = torch.zeros(0)
        self.shared: dict[str, torch.Tensor] = {}
        if rounds.phase(seat.first) == "apart":
            self._settle(start.values())
        else:
            self.whole_model = ExactMember(start, seat)

    def _settle(self, values: Values) -> None:
        """Keep the home and the slice of the first round, and let go of the rest."""
        low, high = home_range(self.elements, self.seat.rank, self.seat.workers)
        self.home, self.whole_model = self._flat(values, np.arange(low, high)), None
        self.shared = {each.name: values[each.name].detach().clone() for each in self.common}
        self._hold(self._flat(values, self._own(0, self.elements)))

    def _flat(self, values: Values, chosen: Indices) -> torch.Tensor:
        """Some of the divided weights, which lie one after another."""
        at, pieces = starts(self.divided), []
        for i, weight in enumerate(self.divided):
            low, high = np.searchsorted(chosen, at[i]), np.searchsorted(chosen, at[i + 1])
            flat = values[weight.name].detach().reshape(-1)
            pieces.append(flat[torch.from_numpy(chosen[low:high] - at[i])])
        return torch.cat(pieces)

    def _own(self, low: int, high: int) -> Indices:
        return self._places(self.seat.rank, low, high)

    def _places(self, rank: int, low: int, high: int) -> Indices:
        """What a worker holds of a range of the divided weights in this round."""
        return flat_places(self.divided, self.cut.draw(self.round, self.seat.seed)[rank], low, high)

    def _hold(self, flat: torch.Tensor) -> None:
        """Train these numbers from now on; an optimizer goes on if they are the same weights as before."""
        values, at = dict(self.shared), 0
        chosen = self.cut.draw(self.round, self.seat.seed)[self.seat.rank]
        for weight in self.divided:
            sizes = held_sizes(weight, chosen)
            if sizes is not None:
                count = int(np.prod(sizes))
                values[weight.name] = flat[at : at + count].view(sizes)
                at += count
        ordered = {each.name: values[each.name] for each in self.anatomy.weights if each.name in values}
        if self.local is not None and self.cut.whole:
            self.local.set_flat(torch.cat([each.reshape(-1) for each in ordered.values()]))
        else:
            self.local = Local(self.network, self.learning, ordered)
        self.shared = {}

    def step(self, number: int, batch: Batch) -> Talk[float]:
        """Learn alone; fetch and give back where rounds begin and end."""
        self.last = batch
        if self.rounds.phase(number) != "apart":
            return (yield from self._step_whole(number, batch))
        if self.whole_model is not None:
            values = yield from self.whole_model.whole()
            self.round = self.rounds.number(number)
            self._settle(values)
        elif self.due:
            yield from self._fetch(number)
        assert self.local is not None
        loss = self.local.learn(number, batch)
        if self.rounds.ends(number):
            yield from self._give_back()
        return loss

    def _step_whole(self, number: int, batch: Batch) -> Talk[float]:
        if self.whole_model is None:
            values = yield from self.whole()
            self.whole_model = ExactMember(Local(self.network, self.learning, values), self.seat)
            self.local, self.home, self.shared = None, torch.zeros(0), {}
        return (yield from self.whole_model.step(number, batch))

    def _fetch(self, number: int) -> Talk[None]:
        """Get the slice of the round that a step opens from its homes."""
        self.round, self.due = self.rounds.number(number), False
        low, high = self._home()
        given = [
            self.home[torch.from_numpy(self._places(rank, low, high) - low)]
            for rank in range(self.seat.workers)
        ]
        found = yield Exchange(given, self._sizes())
        self._hold(torch.cat(found))

    def _give_back(self) -> Talk[None]:
        """Send the slice to its homes, and take the mean of what others had of the home's numbers."""
        assert self.local is not None
        given = list(self._divided_flat().split_with_sizes(self._sizes()))
        low, high = self._home()
        places = [self._places(rank, low, high) - low for rank in range(self.seat.workers)]
        self.shared = yield from self._mean_shared()
        if not self.cut.whole:
            self.local = None
        found = yield Exchange(given, [len(each) for each in places])
        total, count = torch.zeros_like(self.home), torch.zeros_like(self.home)
        for each, values in zip(places, found, strict=True):
            chosen = torch.from_numpy(each)
            total[chosen] += values
            count[chosen] += 1.0
        self.due = True
        self.home = torch.where(count > 0, total / count.clamp(min=1.0), self.home)

    def _mean_shared(self) -> Talk[dict[str, torch.Tensor]]:
        """The mean of the weights that all hold."""
        if not self.common:
            return {}
        assert self.local is not None
        views = [self.local.views[each.name].detach() for each in self.common]
        total = (yield Sum(torch.cat([each.reshape(-1) for each in views]))) / self.seat.workers
        pieces = total.split_with_sizes([each.elements for each in self.common])
        return {each.name: piece.view(each.sizes) for each, piece in zip(self.common, pieces, strict=True)}

    def _divided_flat(self) -> torch.Tensor:
        assert self.local is not None
        views = [self.local.views[each.name] for each in self.divided if each.name in self.local.views]
        return torch.cat([each.detach().reshape(-1) for each in views])

    def _home(self) -> tuple[int, int]:
        return home_range(self.elements, self.seat.rank, self.seat.workers)

    def _sizes(self) -> list[int]:
        """How many numbers of this worker's slice are at home at each worker."""
        own = self._own(0, self.elements)
        ends = [home_range(self.elements, rank, self.seat.workers)[1] for rank in range(self.seat.workers)]
        return [int(each) for each in np.diff(np.searchsorted(own, ends), prepend=0)]

    @property
    def sliced(self) -> bool:
        """Whether weights are those of slices, which nobody trains as a whole."""
        return self.whole_model is None

    def whole(self) -> Talk[dict[str, torch.Tensor]]:
        """The merged model, scaled for inference: slices as of the last round that has ended."""
        ordered = yield from self.merged()
        if not self.sliced:
            return ordered
        return (yield from rescale(self.network, self.cut, self.scale, ordered, self.last))

    def merged(self) -> Talk[dict[str, torch.Tensor]]:
        """The whole model as training goes on from it, not scaled; shared weights are always their mean."""
        if self.whole_model is not None:
            return (yield from self.whole_model.whole())
        size = home_range(self.elements, 0, self.seat.workers)[1]
        padded = torch.cat([self.home, self.home.new_zeros(size - len(self.home))])
        flat = (yield Gather(padded, torch.cat))[: self.elements].clone()
        pieces = flat.split_with_sizes([each.elements for each in self.divided])
        values = {w.name: piece.view(w.sizes) for w, piece in zip(self.divided, pieces, strict=True)}
        common = self.shared or (yield from self._mean_shared())
        merged = {**values, **{name: each.clone() for name, each in common.items()}}
        return {each.name: merged[each.name] for each in self.anatomy.weights}

    def kept(self) -> dict[str, Any]:
        """Home, slice and round, or the whole model; and the samples that a merged model is calibrated by."""
        return {
            "home": self.home, "shared": self.shared, "round": self.round, "due": self.due,
            "last": (self.last.inputs, self.last.targets) if self.last else None,
            "local": self.local.kept() if self.local else None,
            "whole": self.whole_model.kept() if self.whole_model else None,
        }  # fmt: skip

    def take_over(self, kept: Mapping[str, Any]) -> None:
        """Go on from them."""
        self.round, self.due, self.home = kept["round"], kept["due"], kept["home"].clone()
        self.local, self.whole_model = None, None
        self.last = Batch(*kept["last"]) if kept.get("last") else None
        self.shared = {name: each.clone() for name, each in kept["shared"].items()}
        if kept["whole"] is not None:
            start = Local(self.network, self.learning, self.network.initial(0))
            self.whole_model = ExactMember(start, self.seat)
            self.whole_model.take_over(kept["whole"])
        if kept["local"] is not None:
            held, shared = kept["local"]["flat"], self.shared
            self.shared = {each.name: torch.zeros(each.sizes) for each in self.common}
            self._hold(torch.zeros(len(held) - sum(each.elements for each in self.common)))
            assert self.local is not None
            self.local.take_over(kept["local"])
            self.shared = shared
