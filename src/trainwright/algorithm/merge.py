"""What a merged model of subnetworks is multiplied by before it is used, or trained, as a whole."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from trainwright.algorithm.anatomy import Anatomy
from trainwright.algorithm.partition import Cut
from trainwright.algorithm.protocol import Talk, Values
from trainwright.algorithm.rounds import EXPONENTS, Scale
from trainwright.algorithm.talk import Sum

if TYPE_CHECKING:
    import torch

    from trainwright.algorithm.network import Batch, Network


def scaled(
    anatomy: Anatomy, values: Values, shares: Mapping[str, float], exponent: float
) -> "dict[str, torch.Tensor]":
    """A merged model whose units put out a power of their share of what they did."""
    factors = {each.name: shares[each.reads] ** exponent for each in anatomy.weights if each.reads}
    return {name: each * factors.get(name, 1.0) for name, each in values.items()}


def rescale(
    network: "Network", cut: Cut, scale: Scale, values: Values, batch: "Batch | None"
) -> "Talk[dict[str, torch.Tensor]]":
    """A merged model that is fit for use: every worker asks alike, and calibrates by samples of its own."""
    shares = {group: cut.share(group) for group in cut.anatomy.units}
    exponent = {"share": 1.0, "none": 0.0}.get(scale)
    if exponent is None:
        exponent = yield from _calibrated(network, shares, values, batch)
    return scaled(cut.anatomy, values, shares, exponent)


def _calibrated(
    network: "Network", shares: Mapping[str, float], values: Values, batch: "Batch | None"
) -> Talk[float]:
    """The power of the shares at which the workers' samples have the least loss."""
    import torch

    losses = torch.zeros(len(EXPONENTS))
    for place, exponent in enumerate(EXPONENTS if batch is not None else ()):
        with torch.no_grad():
            tried = scaled(network.anatomy, values, shares, exponent)
            losses[place] = network.loss(tried, batch)  # type: ignore[arg-type]
    total = yield Sum(losses)
    return EXPONENTS[int(total.argmin())]
