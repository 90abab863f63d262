"""Theory against simulation on quadratics: where subnetworks and compressed gradients end up."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trainwright.algorithm.theory import guarantees
from trainwright.algorithm.theory.compressed import CompressedDescent
from trainwright.algorithm.theory.quadratic import Quadratic, homogeneous, random_quadratic
from trainwright.algorithm.theory.remembering import Remembering
from trainwright.algorithm.theory.simulate import Array, simulate_compressed, simulate_subnetworks
from trainwright.algorithm.theory.subnetworks import Subnetworks

if TYPE_CHECKING:
    from trainwright.algorithm.theory.moments import Recursion, Round

DIMS, WORKERS = 8, 4
_HELD = {"ist": DIMS // WORKERS, "ist half": DIMS // 2}
_KEPT = DIMS // WORKERS  # of compressed methods
_TRIALS, _LATE = 200, 50  # runs of each method; rounds at their end that are averaged
_STEP = 0.2  # of the largest stable one
_MOST_ROUNDS = 6000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The mean square distance from the minimum that a method ends at: by theory, and simulated.

    The minimum has norm 1, or, if it is 0, the start has. `error` is the standard error of the simulation;
    `bias` is the part of the theory's distance that no step size removes.
    """

    case: str
    method: str
    step: float
    theory: float
    bias: float
    simulated: float
    error: float

    @property
    def agrees(self) -> bool:
        """Within four standard errors and a ten-thousandth of the start."""
        return abs(self.simulated - self.theory) <= 4.0 * self.error + 1e-4


def cases(seed: int = 0) -> Mapping[str, Quadratic]:
    """Homogeneous, heterogeneous, interpolating, weakly coupled, and without slopes (b = 0)."""
    weak = random_quadratic(DIMS, WORKERS, seed, kind="same")
    bent = weak.mean_curvature
    loose = np.diag(np.diag(bent)) + 0.1 * (bent - np.diag(np.diag(bent)))
    apart = random_quadratic(DIMS, WORKERS, seed)
    found = {
        "homogeneous": random_quadratic(DIMS, WORKERS, seed, kind="same"),
        "heterogeneous": apart,
        "interpolation": random_quadratic(DIMS, WORKERS, seed, kind="meeting"),
        "weakly coupled": homogeneous(loose, weak.mean_slope, WORKERS),
        "b = 0": Quadratic(curvature=apart.curvature, slope=np.zeros_like(apart.slope)),
    }
    return {name: _unit(each) for name, each in found.items()}


def _unit(quadratic: Quadratic) -> Quadratic:
    """Slopes scaled so that the minimum has norm 1."""
    size = float(np.linalg.norm(quadratic.minimum)) or 1.0
    return Quadratic(curvature=quadratic.curvature, slope=quadratic.slope / size)


def endings(seed: int = 0) -> list[Ending]:
    """Every method on every case."""
    return [
        ending
        for name, quadratic in cases(seed).items()
        for ending in (*_divided(name, quadratic, seed), *_compressed(name, quadratic, seed))
    ]


def _divided(name: str, quadratic: Quadratic, seed: int) -> list[Ending]:
    found = []
    for method, held in _HELD.items():
        told = Subnetworks(quadratic=quadratic, held=held)
        turn = _gentle(told.recursion())
        late = _Late(quadratic.minimum, _rounds(turn.square_rate()))
        simulate_subnetworks(told, _start(quadratic), turn.step, late.rounds, seed, watch=late)
        found.append(_ending(name, method, turn, late))
    return found


def _compressed(name: str, quadratic: Quadratic, seed: int) -> list[Ending]:
    def ended(method: str, kind: str, told: "Recursion | Remembering") -> Ending:
        turn = _gentle(told)
        late = _Late(quadratic.minimum, _rounds(turn.square_rate()))
        start = _start(quadratic)
        simulate_compressed(quadratic, kind, _KEPT, start, turn.step, late.rounds, seed, watch=late)
        return _ending(name, method, turn, late)

    rand = CompressedDescent(quadratic=quadratic, kept=_KEPT, kind="rand")
    perm = CompressedDescent(quadratic=quadratic, kept=_KEPT, kind="perm")
    return [
        ended("rand-k", "dcgd-rand", rand.recursion()),
        ended("perm-k", "dcgd-perm", perm.recursion()),
        ended("diana", "diana", Remembering(quadratic=quadratic, kept=_KEPT, kind="diana")),
        _largest_kept(name, quadratic, seed),
        ended("marina", "marina", Remembering(quadratic=quadratic, kept=_KEPT, kind="marina")),
    ]


def _largest_kept(name: str, quadratic: Quadratic, seed: int) -> Ending:
    """EF21 with the largest coordinates, of which step and rate are proved but no moments are known."""
    proved = guarantees.ef21(quadratic, _KEPT / DIMS)
    late = _Late(quadratic.minimum, _rounds(proved.rate))
    start = _start(quadratic)
    simulate_compressed(quadratic, "ef21", _KEPT, start, proved.step, late.rounds, seed, watch=late)
    simulated, error = late.found()
    return Ending(
        case=name, method="ef21", step=proved.step, theory=proved.floor, bias=0.0, simulated=simulated,
        error=error,
    )  # fmt: skip


def _gentle(method: "Recursion | Remembering") -> "Round":
    """A round at a share of the largest stable step."""
    return method.at(_STEP * method.largest_step())


def _ending(name: str, method: str, turn: "Round", late: "_Late") -> Ending:
    """E|x - x*|^2 is the square of the bias and the trace of the stationary covariance, both of x alone."""
    bias = float(((turn.fixed_point[:DIMS] - late.minimum) ** 2).sum())
    spread = float(np.trace(turn.covariance()[:DIMS, :DIMS]))
    simulated, error = late.found()
    return Ending(
        case=name, method=method, step=turn.step, theory=bias + spread, bias=bias, simulated=simulated,
        error=error,
    )  # fmt: skip


def _start(quadratic: Quadratic) -> Array:
    """All trials at 0, or, if that is the minimum, at a point of norm 1."""
    at = np.zeros(DIMS) if quadratic.mean_slope.any() else np.full(DIMS, DIMS**-0.5)
    return np.repeat(at[None], _TRIALS, 0)


def _rounds(rate: float) -> int:
    """As many as it takes to forget the start to a ten-thousandth."""
    return min(int(np.log(1e-4) / np.log(min(rate, 0.9999))) + _LATE + 1, _MOST_ROUNDS)


class _Late:
    """Watches a simulation: the square distance from the minimum over its last rounds, trial by trial."""

    def __init__(self, minimum: Array, rounds: int) -> None:
        self.minimum, self.rounds = minimum, rounds
        self.sums: Array = np.zeros(_TRIALS)

    def __call__(self, number: int, x: Array) -> None:
        """Take in a round."""
        if number >= self.rounds - _LATE:
            self.sums = self.sums + ((x - self.minimum) ** 2).sum(1) / _LATE

    def found(self) -> tuple[float, float]:
        """The mean over trials, and its standard error."""
        return float(self.sums.mean()), float(self.sums.std(ddof=1) / np.sqrt(len(self.sums)))
