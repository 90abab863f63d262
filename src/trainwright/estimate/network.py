"""The levels of a job's cluster as collectives see them."""

from trainwright.cost.collective import Link
from trainwright.cost.network import level_links
from trainwright.estimate.types import Job

__all__ = ["level_links", "links"]


def links(job: Job) -> tuple[Link, ...]:
    """Achieved bandwidth and latency of each level of a job's cluster, inner to outer."""
    return level_links(job.cluster, job.efficiency, job.stack)
