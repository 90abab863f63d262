"""A plan as the YAML of nanotron 0.4, its last release: no recomputation, no context parallelism."""

from collections.abc import Iterator

from trainwright.export import nanotron
from trainwright.export.canonical import canonical
from trainwright.export.flags import comment
from trainwright.export.handover import Handover
from trainwright.export.yaml import render_yaml

NAME = "nanotron 0.4"


def remarks(handover: Handover) -> Iterator[str]:
    """What is left to do."""
    return (each for each in nanotron.remarks(handover) if not each.startswith("context_parallel_size"))


def render(handover: Handover, notes: list[str]) -> str:
    """The YAML; learning rates and data are nanotron's examples, yours to change."""
    strategy = canonical(handover.strategy)
    optimizer = nanotron.shared_optimizer(handover) | nanotron.ADAM
    return comment(notes) + render_yaml(
        nanotron.tree_of(handover, nanotron.shared_parallelism(strategy), optimizer)
    )
