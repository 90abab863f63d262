"""Methods on quadratics, step by step, many independent trials at once."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from trainwright.algorithm.theory.kept import Kept
from trainwright.algorithm.theory.quadratic import Quadratic
from trainwright.algorithm.theory.subnetworks import Subnetworks

Array = NDArray[np.float64]
State = dict[str, Array]
Chance = np.random.Generator
Watch = Callable[[int, Array], None]  # after every round: its number, and x of all trials


def simulate_subnetworks(
    method: Subnetworks, start: Array, step: float, rounds: int, seed: int, local_steps: int = 1,
    watch: Watch | None = None,
) -> Array:  # fmt: skip
    """x of all trials (rows of `start`) after some rounds of IST without the paper's scaling.

    A round with several local steps trains each slice alone; where slices overlap, their mean is taken.
    """
    source, x = np.random.default_rng(seed), start.copy()
    for number in range(rounds):
        masks = method.windows.draw(len(x), source)
        x = x - step * _gap(method, masks, x) if local_steps == 1 else merged(
            method.quadratic, masks, x, step, local_steps
        )  # fmt: skip
        if watch:
            watch(number, x)
    return x


def _gap(method: Subnetworks, masks: Array, x: Array) -> Array:
    """A x - s without building A."""
    w, v = method.weights
    held = masks * x[:, None, :]
    bent = np.einsum("ijl,kil->kij", method.quadratic.curvature, held, optimize=True) * masks
    return np.asarray(w * bent.sum(1) - v * (masks * method.quadratic.slope).sum(1))


def merged(quadratic: Quadratic, masks: Array, x: Array, step: float, local_steps: int) -> Array:
    """x after one round of local steps on every slice."""
    held = masks * x[:, None, :]
    for _ in range(local_steps):
        bent = np.einsum("ijl,kil->kij", quadratic.curvature, held, optimize=True)
        held = held - step * masks * (bent - quadratic.slope)
    return np.asarray(held.sum(1) / masks.sum(1))


def simulate_compressed(
    quadratic: Quadratic, kind: str, kept: int, start: Array, step: float, rounds: int, seed: int,
    watch: Watch | None = None,
) -> Array:  # fmt: skip
    """x of all trials after some steps of a compressed method, one of `_DIRECTIONS`.

    DIANA keeps `kept` coordinates at random, EF21 the largest (ef21-rand: some at random, as they are) and
    MARINA those of Perm-K (marina-rand: some at random), with a whole gradient once in d/kept steps: all
    send about as much.
    """
    source, x = np.random.default_rng(seed), start.copy()
    state: State = {}
    for number in range(rounds):
        x = x - step * _DIRECTIONS[kind](quadratic, kept, x, state, source)
        if watch:
            watch(number, x)
    return x


def _rand(q: Quadratic, kept: int) -> Kept:
    return Kept(dims=q.dims, workers=q.workers, kept=kept)


def _perm(q: Quadratic) -> Kept:
    return Kept(dims=q.dims, workers=q.workers, kept=q.dims // q.workers, kind="perm")


def _dcgd_rand(q: Quadratic, kept: int, x: Array, state: State, source: Chance) -> Array:
    masks = _rand(q, kept).draw(len(x), source)
    return np.asarray((masks * q.gradients(x)).mean(1) * (q.dims / kept))


def _dcgd_perm(q: Quadratic, kept: int, x: Array, state: State, source: Chance) -> Array:
    return np.asarray((_perm(q).draw(len(x), source) * q.gradients(x)).sum(1))


def _diana(q: Quadratic, kept: int, x: Array, state: State, source: Chance) -> Array:
    gradients = q.gradients(x)
    shift = state.setdefault("shift", np.zeros_like(gradients))
    sent = _rand(q, kept).draw(len(x), source) * (gradients - shift) * (q.dims / kept)
    found = (shift + sent).mean(1)
    state["shift"] = shift + kept / q.dims * sent
    return np.asarray(found)


def _ef21(q: Quadratic, kept: int, x: Array, state: State, source: Chance) -> Array:
    gradients = q.gradients(x)
    known = state.setdefault("known", np.zeros_like(gradients))
    change = gradients - known
    ranks = np.abs(change).argsort(-1).argsort(-1)
    state["known"] = known + change * (ranks >= q.dims - kept)
    return np.asarray(state["known"].mean(1))


def _ef21_rand(q: Quadratic, kept: int, x: Array, state: State, source: Chance) -> Array:
    gradients = q.gradients(x)
    known = state.setdefault("known", np.zeros_like(gradients))
    state["known"] = known + _rand(q, kept).draw(len(x), source) * (gradients - known)
    return np.asarray(state["known"].mean(1))


def _marina(q: Quadratic, kept: int, x: Array, state: State, source: Chance) -> Array:
    return _told(q, _perm(q), kept / q.dims, x, state, source)


def _marina_rand(q: Quadratic, kept: int, x: Array, state: State, source: Chance) -> Array:
    return _told(q, _rand(q, kept), kept / q.dims, x, state, source)


def _told(q: Quadratic, sketch: Kept, whole: float, x: Array, state: State, source: Chance) -> Array:
    """MARINA's direction: what was told before and the compressed change, or all with chance `whole`."""
    gradients = q.gradients(x)
    if not state:
        state |= {"before": gradients, "found": gradients.mean(1)}
    change = sketch.factor * sketch.draw(len(x), source) * (gradients - state["before"])
    moved = state["found"] + change.sum(1)
    chosen = source.random(len(x)) < whole
    state |= {"before": gradients, "found": np.where(chosen[:, None], gradients.mean(1), moved)}
    return state["found"]


_DIRECTIONS: dict[str, Callable[[Quadratic, int, Array, State, Chance], Array]] = {
    "dcgd-rand": _dcgd_rand,
    "dcgd-perm": _dcgd_perm,
    "diana": _diana,
    "ef21": _ef21,
    "ef21-rand": _ef21_rand,
    "marina": _marina,
    "marina-rand": _marina_rand,
}
