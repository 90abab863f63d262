"""How much the units of a trained network lean on one another, and what subnetworks would lose by it.

Every unit is given a gate, 1 in the network as it is, 0 where a subnetwork is without it. In the gates the
loss is taken for a quadratic with the curvature H and the minimum 1, where the theory holds: subnetworks find
M^-1 (H 1 - slope), M being H weighted by the chance that a subnetwork holds one unit, given that it holds the
other. If H is diagonal, that is 1, and nothing is lost.
"""

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

    `excess_loss` is what a merged model of subnetworks loses by it on the gates' quadratic, best scaled;
    `relative` is that in units of what the gates are worth, f(0) - f(1) of the quadratic.
    """

    off_diagonal: float
    excess_loss: float
    relative: float


def gate_curvature(network: Network, values: Values, batch: Batch) -> tuple[Array, Array]:
    """The Hessian and gradient of the loss in the gates of all units: a Hessian-vector product each."""
    anatomy = network.anatomy
    gates = torch.ones(sum(anatomy.units.values()), requires_grad=True)
    with sdpa_kernel(SDPBackend.MATH):  # the others have no second derivative
        loss = network.loss(gated(anatomy, values, gates), batch)
        (slope,) = torch.autograd.grad(loss, gates, create_graph=True)
        each = [torch.autograd.grad(slope[i], gates, retain_graph=True)[0] for i in range(len(gates))]
    rows = [row.double().numpy() for row in each]
    bent = np.stack(rows)
    return 0.5 * (bent + bent.T), slope.detach().double().numpy()


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
    """The chance that a subnetwork holds a unit, given that it holds another; 1 on the diagonal."""
    groups = list(cut.anatomy.units)
    kinds = np.repeat(np.arange(len(groups)), list(cut.anatomy.units.values()))
    shares = np.array([cut.share(group) for group in groups])
    found = np.sqrt(np.outer(shares[kinds], shares[kinds]))
    for kind, group in enumerate(groups):
        units = cut.anatomy.units[group]
        inside = (shares[kind] * units - 1) / (units - 1) if units > 1 else 1.0
        found[np.ix_(kinds == kind, kinds == kind)] = inside
    np.fill_diagonal(found, 1.0)
    return np.asarray(found)


def coupling(network: Network, values: Values, batch: Batch, cut: Cut) -> Coupling:
    """The coupling of a trained network, and what it means for subnetworks that are cut like this.

    Directions in which the curvature is negative are left out: there the quadratic has no minimum.
    """
    bent, slope = gate_curvature(network, values, batch)
    off = float(1.0 - (np.diag(bent) ** 2).sum() / max((bent**2).sum(), 1e-300))
    eigenvalues, vectors = np.linalg.eigh(bent)
    convex = (vectors * eigenvalues.clip(min=0.0)) @ vectors.T
    pull = convex.sum(1) - slope  # so that the minimum is where the network is, but for its slope
    mixed = together(cut) * convex
    found = np.linalg.lstsq(mixed + 1e-9 * np.trace(mixed) * np.eye(len(mixed)), pull, rcond=None)[0]
    weight = float(found @ convex @ found)
    scale = float(found @ pull) / weight if weight > 0 else 1.0
    best = np.linalg.lstsq(convex, pull, rcond=None)[0]
    gap = scale * found - best
    excess = 0.5 * float(gap @ convex @ gap)
    worth = 0.5 * float(best @ convex @ best)
    return Coupling(off_diagonal=off, excess_loss=excess, relative=excess / max(worth, 1e-300))
