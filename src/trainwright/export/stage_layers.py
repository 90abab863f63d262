"""The layers of each pipeline stage of a plan, as exports must state them."""

from itertools import accumulate, pairwise

from trainwright.export.handover import Handover
from trainwright.plan.stages import even_counts, stage_counts


def predicted_layers(layers: int, pp: int, vpp: int) -> tuple[int, ...]:
    """Layers of each chunk as plans cut them: chunk c of stage s stands at c·pp + s."""
    return tuple(stage_counts(even_counts(layers, pp, vpp), list(range(pp)) * vpp))


def chunk_layers(handover: Handover) -> tuple[int, ...]:
    """Layers of each chunk of a plan, in the order of the model."""
    strategy, arch = handover.strategy, handover.architecture
    assert arch is not None
    return predicted_layers(arch.layers, strategy.pp, strategy.vpp)


def has_uneven_stages(handover: Handover) -> bool:
    """Whether chunks of a known model differ in their number of layers."""
    if handover.architecture is None or handover.strategy.pp == 1:
        return False
    return len(set(chunk_layers(handover))) > 1


def relieves_ends(handover: Handover) -> bool:
    """Whether only the first and the last chunk have a layer less: embedding and loss count as layers."""
    first, *middle, last = chunk_layers(handover)
    return len(set(middle)) == 1 and first == last == middle[0] - 1


def render_layout(handover: Handover) -> str:
    """The layout in Megatron's letters: E embedding, t layer, L loss, | between chunks."""
    counts = chunk_layers(handover)
    parts = ["t" * count for count in counts]
    return "|".join(["E" + parts[0], *parts[1:-1], parts[-1] + "L"])


def chunk_modules(handover: Handover, first: str, layer: str, last: tuple[str, ...]) -> list[list[str]]:
    """The names of the modules of each chunk, layers numbered from 0."""
    bounds = list(pairwise(accumulate(chunk_layers(handover), initial=0)))
    names = [[f"{layer}.{index}" for index in range(a, b)] for a, b in bounds]
    names[0].insert(0, first)
    names[-1].extend(last)
    return names
