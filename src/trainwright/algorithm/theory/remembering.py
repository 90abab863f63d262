"""Compressed methods that remember, on quadratics with random subsets of coordinates: exact moments.

DIANA, EF21 and MARINA send what is new of their gradients. Beside x they remember h_1 ... h_n, one vector a
worker (DIANA, EF21), or g, what was told so far (MARINA). A round is linear in z, which is x and all of that
in one row. EF21 keeps its coordinates at random here, as they are: the largest ones (Top-K) are no linear
function of z, and the noise of natural compression and of QSGD is no quadratic one. Those have no exact
moments; there, what `guarantees` has is what is known.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trainwright.algorithm.theory.kept import Kept
from trainwright.algorithm.theory.masked import Masked
from trainwright.algorithm.theory.moments import Round, largest_step
from trainwright.algorithm.theory.quadratic import Quadratic

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Remembering:
    """`kept` coordinates a worker and round, as `simulate_compressed` has it under the same name.

    MARINA tells a whole gradient with chance K/d; "marina" keeps coordinates by Perm-K, the others by Rand-K.
    """

    quadratic: Quadratic
    kept: int
    kind: Literal["diana", "ef21-rand", "marina", "marina-rand"]

    def __post_init__(self) -> None:
        _ = self.sketch  # which refuses what it cannot keep

    @cached_property
    def sketch(self) -> Kept:
        """What each worker keeps of what is new."""
        q = self.quadratic
        kind: Literal["rand", "perm"] = "perm" if self.kind == "marina" else "rand"
        return Kept(dims=q.dims, workers=q.workers, kept=self.kept, kind=kind)

    def fixed_point(self) -> Array:
        """x* and what is remembered there, the gradients: nothing is new then, so no draw moves it."""
        return self._with_memory(self.quadratic.minimum, self.quadratic.gradients(self.quadratic.minimum))

    def bias(self) -> Array:
        """Where x goes less the minimum: 0, also for workers that disagree."""
        return self.fixed_point()[: self.quadratic.dims] - self.quadratic.minimum

    def start(self, x: Array) -> Array:
        """z before the first round: workers remember nothing, except that MARINA begins with a gradient."""
        met = self.quadratic.gradients(x)
        return self._with_memory(x, met if self._tells else 0.0 * met)

    def at(self, step: float) -> Round:
        """A round; its noise is 0."""
        move, z = (self._told(step) if self._tells else self._shifted(step)), self.fixed_point()
        return Round(step=step, fixed_point=z, mean=move.mean, moved=move.conjugate, noise=move.spread(z))

    def expected(self, x: Array, step: float, rounds: int) -> Array:
        """E|x_k - x*|^2 for k = 0 ... rounds, exactly, from a given x."""
        turn, gap = self.at(step), self.start(x) - self.fixed_point()
        moment, found = np.outer(gap, gap), []
        for _ in range(rounds + 1):
            found.append(np.trace(moment[: self.quadratic.dims, : self.quadratic.dims]))
            moment = turn.moved(moment)
        return np.array(found)

    def largest_step(self) -> float:
        """The step below which all is stable in the mean square.

        In the mean DIANA and MARINA are gradient descent, stable below 2/max eig L; EF21, which is late, is
        stable in the mean below (2 - p)/p times that, p = K/d. That all smaller steps are stable, and no
        larger ones, is not proved; it was so on 240 random cases, with steps up to three times as large.
        """
        share = self.sketch.share
        late = (2.0 - share) / share if self.kind == "ef21-rand" else 1.0
        return largest_step(
            self.at, 2.0 * late / float(np.linalg.eigvalsh(self.quadratic.mean_curvature)[-1])
        )

    @property
    def _tells(self) -> bool:
        return self.kind in ("marina", "marina-rand")

    def _with_memory(self, x: Array, gradients: Array) -> Array:
        return np.concatenate([x, gradients.mean(0) if self._tells else gradients.ravel()])

    def _shifted(self, step: float) -> Masked:
        """x+ = x - c mean(h_i + a R_i (grad_i - h_i)), h_i+ = h_i + R_i (grad_i - h_i).

        R_i keeps coordinates; a is d/K for DIANA, so that its direction has no bias, and 1 for EF21.
        """
        q, d, n = self.quadratic, self.quadratic.dims, self.quadratic.workers
        mean, own = np.tile(np.eye(d), n) / n, np.eye(n * d)
        scale = 1.0 / self.sketch.share if self.kind == "diana" else 1.0
        return Masked(
            plain=np.block([[np.eye(d), -step * mean], [np.zeros((n * d, d)), own]]),
            shift=np.zeros((1 + n) * d),
            into=np.vstack([-step * scale * mean, own]),
            seen=np.hstack([q.curvature.reshape(n * d, d), -own]),
            seen_shift=-q.slope.ravel(),
            chance=np.full(n * d, self.sketch.share),
            covariance=self.sketch.covariance(),
        )

    def _told(self, step: float) -> Masked:
        """x+ = x - c g; g+ = grad f(x+) if a coin falls, else g + mean C_i (grad_i(x+) - grad_i(x)).

        Random are the coin, once a coordinate, and the masks of C_i where it does not fall: they choose
        from grad f(x+) - g, and from grad_i(x+) - grad_i(x) = -c L_i g.
        """
        q, d, n = self.quadratic, self.quadratic.dims, self.quadratic.workers
        one, none, bent = np.eye(d), np.zeros((d, d)), q.mean_curvature
        chance, covariance = _coin_and_masks(self.sketch)
        return Masked(
            plain=np.block([[one, -step * one], [none, one]]),
            shift=np.zeros(2 * d),
            into=np.block([[none, np.tile(none, n)], [one, self.sketch.factor * np.tile(one, n)]]),
            seen=np.block(
                [[bent, -step * bent - one], [np.zeros((n * d, d)), -step * q.curvature.reshape(n * d, d)]]
            ),
            seen_shift=np.concatenate([-q.mean_slope, np.zeros(n * d)]),
            chance=chance,
            covariance=covariance,
        )


def _coin_and_masks(sketch: Kept) -> tuple[Array, Array]:
    """Mean and covariance of a coin that falls with chance K/d, d times, and of masks where it does not."""
    d, rest, share = sketch.dims, sketch.dims * sketch.workers, sketch.share
    chance = np.concatenate([np.full(d, share), np.full(rest, (1.0 - share) * share)])
    masks = (1.0 - share) * (sketch.covariance() + share**2)
    both = np.block([[np.full((d, d), share), np.zeros((d, rest))], [np.zeros((rest, d)), masks]])
    return chance, both - np.outer(chance, chance)
