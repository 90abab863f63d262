"""Independent subnetwork training: every worker trains a slice of the model that it alone holds.

Yuan et al., VLDB 2022; blocks as in ResIST (Dun et al. 2022). Between rounds the divided weights lie at their
homes, 1/n of them at each worker. A round fetches slices, trains them, gives them back; where several workers
held a number, its home takes the mean.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwright.algorithm.anatomy import Anatomy, forward_flops
from trainwright.algorithm.checks import check_every, check_share, check_whole
from trainwright.algorithm.exact import Exact
from trainwright.algorithm.message import FLOAT_BYTES, Message
from trainwright.algorithm.partition import Cut, home_range
from trainwright.algorithm.protocol import Compute, Member, Memory, Seat, Values
from trainwright.algorithm.rounds import EXPONENTS, Rounds, Scale
from trainwright.errors import BadInput

if TYPE_CHECKING:
    from trainwright.algorithm.learning import Learning
    from trainwright.algorithm.network import Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Ist:
    """Rounds of `every` local steps on subnetworks that hold `coverage` of every group's units (0: disjoint).

    The first `warmup` and the last `finish` steps train the whole model exactly. A merged model gets more
    from its units than a subnetwork did; what reads them is scaled: by the share that a subnetwork has
    ("share"), by the power of it that suits the workers' last batches best ("calibrated"), or not ("none").
    """

    every: int = 20
    coverage: float = 0.0
    warmup: int = 0
    finish: int = 0
    scale: Scale = "calibrated"

    def __post_init__(self) -> None:
        check_every(self.every)
        check_whole("warmup", self.warmup, 0)
        check_whole("finish", self.finish, 0)
        check_share("coverage", self.coverage, zero=True)
        if self.scale not in ("calibrated", "share", "none"):
            raise BadInput("algorithm's scale", self.scale, "is unknown", "use calibrated, share or none")

    def begin(self, network: "Network", learning: "Learning", seat: Seat, start: Values) -> Member:
        """A worker with its slice, or with all of it while the whole model is trained."""
        check_units(network.anatomy, seat.workers)
        if seat.workers == 1:
            return Exact().begin(network, learning, seat, start)
        from trainwright.algorithm.local import Local
        from trainwright.algorithm.subnetwork import IstMember

        cut, rounds = self.cut(network.anatomy, seat.workers), self.rounds(seat.steps)
        return IstMember(cut, rounds, self.scale, Local(network, learning, start), seat)

    def cut(self, anatomy: Anatomy, workers: int) -> Cut:
        """How units are divided."""
        return Cut(anatomy=anatomy, workers=workers, coverage=self.coverage)

    def rounds(self, steps: int) -> Rounds:
        """What each of so many steps is for."""
        return Rounds(every=self.every, warmup=self.warmup, finish=self.finish, steps=steps)

    def messages(self, anatomy: Anatomy, seat: Seat, step: int) -> tuple[Message, ...]:
        """Slices, there and back, and shared weights; all gradients while the whole model is trained."""
        if seat.workers == 1:
            return ()
        rounds = self.rounds(seat.steps)
        if rounds.phase(step) != "apart":
            exact = Exact().messages(anatomy, seat, step)
            return (*self.whole_messages(anatomy, seat.workers), *exact) if rounds.merges(step) else exact
        if not (rounds.fetches(step) or rounds.ends(step)):
            return ()
        size = FLOAT_BYTES * self.cut(anatomy, seat.workers).mean_elements
        shared = FLOAT_BYTES * sum(each.elements for each in anatomy.shared)
        found: list[Message] = []
        if rounds.fetches(step):
            found.append(Message(kind="all-to-all", bytes=size))
        if rounds.ends(step):
            found.append(Message(kind="all-to-all", bytes=size))
            found += [Message(kind="all-reduce", bytes=shared)] if shared else []
        return tuple(found)

    def whole_messages(self, anatomy: Anatomy, workers: int) -> tuple[Message, ...]:
        """What it takes to merge: the homes of all weights, and losses at the scales that are tried."""
        _, high = home_range(sum(each.elements for each in anatomy.partitioned), 0, workers)
        homes = Message(kind="all-gather", bytes=FLOAT_BYTES * high)
        tried = Message(kind="all-reduce", bytes=FLOAT_BYTES * len(EXPONENTS))
        return (homes, tried) if self.scale == "calibrated" else (homes,)

    def memory(self, anatomy: Anatomy, workers: int) -> Memory:
        """A home and a slice; the whole model, if it is ever trained exactly."""
        if workers == 1 or self.warmup or self.finish:
            return Exact().memory(anatomy, workers)
        held = self.cut(anatomy, workers).mean_elements + sum(each.elements for each in anatomy.shared)
        home = sum(each.elements for each in anatomy.partitioned) / workers
        return Memory(weights=held + home, gradients=held, moments=held)

    def compute(self, anatomy: Anatomy, workers: int) -> Compute:
        """The subnetwork; exact steps cost as much as those of exact data parallelism."""
        if workers == 1:
            return Exact().compute(anatomy, workers)
        cut = self.cut(anatomy, workers)
        flops = [forward_flops(anatomy, cut.counts(rank)) for rank in range(workers)]
        return Compute(sample_flops=3.0 * sum(flops) / workers)


def check_units(anatomy: Anatomy, workers: int) -> None:
    """Raise for a model that nothing is known to be divisible of, or not by so many."""
    if not anatomy.units:
        rule = "no units of this model are known that subnetworks could be made of"
        raise BadInput("algorithm", "ist", rule, "use diloco, local-sgd or compressed gradients")
    least = min(anatomy.units.values())
    if least < workers:
        rule = f"are more than the {least} units (heads with their keys) that a layer has"
        raise BadInput("workers or islands", workers, rule, "use fewer of them, or diloco")
