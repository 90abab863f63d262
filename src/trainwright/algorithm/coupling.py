"""How much the units of a trained network lean on one another, and what subnetworks would lose by it.

Every unit is given a gate, 1 in the network as it is, 0 where a subnetwork is without it. In the gates the
loss is taken for a quadratic with the curvature H and the minimum 1, where the theory holds: subnetworks find
M^-1 H 1, M being H weighted by the chance that a subnetwork holds one unit, given that it holds the other. If
H is diagonal, that is 1, and nothing is lost.

What that loses, as a share of what the gates are worth, does not change if H is multiplied by a number. The
worth itself does, and H is small where a network is sure of its answers; so it is taken for what the network
has learned: the entropy of the answers' frequencies, less its loss. (Its loss without any unit is no measure:
what is left of a transformer is sure of wrong answers.)

This is what cutting costs. What meeting rarely costs comes on top: local SGD with the same rounds tells it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.attention import SDPBackend, sdpa_kernel

from trainwright.algorithm.anatomy import Anatomy
from trainwright.algorithm.network import Batch, Network, Values
from trainwright.algorithm.partition import Cut

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coupling:
    """`off_diagonal` is the share of the squares of H that lies off its diagonal, 0 to 1.

    `share` is what a merged model of subnetworks loses on the gates' quadratic, best scaled, in units of what
    the gates are worth on it; `learned` is what the network has learned, in units of its loss.
    """

    off_diagonal: float
    share: float
    learned: float

    @property
    def excess_loss(self) -> float:
        """What the network is foretold to lose by the cut, beyond what local SGD loses."""
        return self.share * self.learned


def gate_curvature(network: Network, values: Values, batch: Batch) -> Array:
    """The Hessian of the loss in the gates of all units: a Hessian-vector product each."""
    anatomy = network.anatomy
    gates = torch.ones(sum(anatomy.units.values()), requires_grad=True)
    with sdpa_kernel(SDPBackend.MATH):  # the others have no second derivative
        loss = network.loss(gated(anatomy, values, gates), batch)
        (slope,) = torch.autograd.grad(loss, gates, create_graph=True)
        each = [torch.autograd.grad(slope[i], gates, retain_graph=True)[0] for i in range(len(gates))]
    bent = np.stack([row.double().numpy() for row in each])
    return np.asarray(0.5 * (bent + bent.T))


def gated(anatomy: Anatomy, values: Values, gates: torch.Tensor) -> dict[str, torch.Tensor]:
    """Weights whose units put out as much of themselves as their gates say."""
    pieces = gates.split_with_sizes(list(anatomy.units.values()))
    by_group = dict(zip(anatomy.units, pieces, strict=True))
    found = {name: each.detach() for name, each in values.items()}
    for weight in anatomy.weights:
        if weight.block and weight.reads:
            found[weight.name] = found[weight.name] * by_group[weight.block[0]][weight.block[1]]
        elif weight.reads:
            place = next(i for i, axis in enumerate(weight.axes) if axis and axis.group == weight.reads)
            axis = weight.axes[place]
            assert axis is not None
            factors = by_group[weight.reads].repeat_interleave(axis.width)
            shape = [-1 if i == place else 1 for i in range(len(weight.sizes))]
            found[weight.name] = found[weight.name] * factors.view(shape)
    return found


def together(cut: Cut) -> Array:
    """The chance that a subnetwork that holds one unit (row) holds another (column); 1 on the diagonal."""
    groups = list(cut.anatomy.units)
    kinds = np.repeat(np.arange(len(groups)), list(cut.anatomy.units.values()))
    shares = np.array([cut.share(group) for group in groups])
    found = np.tile(shares[kinds], (len(kinds), 1))
    for kind, group in enumerate(groups):
        units = cut.anatomy.units[group]
        inside = (shares[kind] * units - 1) / (units - 1) if units > 1 else 1.0
        found[np.ix_(kinds == kind, kinds == kind)] = inside
    np.fill_diagonal(found, 1.0)
    return np.asarray(found)


def coupling(network: Network, values: Values, batch: Batch, cuts: Sequence[Cut]) -> list[Coupling]:
    """The coupling of a trained network, and what it means for subnetworks of each of some cuts.

    Directions in which the curvature is negative are left out: there the quadratic has no minimum. So is the
    slope that a network has where its training is not at an end: no quadratic can answer it there.
    """
    bent = gate_curvature(network, values, batch)
    off = float(1.0 - (np.diag(bent) ** 2).sum() / max((bent**2).sum(), 1e-300))
    eigenvalues, vectors = np.linalg.eigh(bent)
    convex = (vectors * eigenvalues.clip(min=0.0)) @ vectors.T
    known = learned(network, values, batch)
    lost = [relative_loss(convex, together(cut)) for cut in cuts]
    return [Coupling(off_diagonal=off, share=each, learned=known) for each in lost]


def relative_loss(convex: Array, mixing: Array) -> float:
    """What subnetworks lose on a quadratic whose minimum is 1, best scaled; of its loss at 0, a share.

    The best scale c of a point x has the loss (c x - 1)'H(c x - 1)/2 = (1'H 1 - (x'H 1)^2 / x'H x)/2.
    """
    pull = convex.sum(1)
    mixed = mixing * convex
    found = np.linalg.lstsq(mixed + 1e-9 * np.trace(mixed) * np.eye(len(mixed)), pull, rcond=None)[0]
    weight, whole = float(found @ convex @ found), float(pull.sum())
    if weight <= 0 or whole <= 0:
        return 0.0
    return max(1.0 - float(found @ pull) ** 2 / (weight * whole), 0.0)


def learned(network: Network, values: Values, batch: Batch) -> float:
    """The entropy of the answers' frequencies, less the loss; 0 for a network that does worse than these."""
    chances = batch.targets.flatten().bincount().double() / batch.targets.numel()
    with torch.no_grad():
        loss = network.loss(values, batch)
    return max(float(torch.special.entr(chances).sum()) - float(loss), 0.0)
