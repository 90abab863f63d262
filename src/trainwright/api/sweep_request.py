"""The request for a sweep of a design space."""

from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Union

from trainwright.api.fields import FilePath, Request, Whole, described, option

if TYPE_CHECKING:
    from trainwright.sweep.types import Sweep


@dataclass(frozen=True)
class SweepRequest(Request):
    """What is the best strategy of each cluster, model and knob along some axes?"""

    what: Union[FilePath, "Sweep"] = field(
        metadata=described("a sweep; or one of query, plot, check, example", "SWEEP.toml", is_file=True)
    )
    out: FilePath | None = option(
        "the dataset (default: the sweep's name); of plot, where files go (.)", "DIR", is_file=True
    )
    _: KW_ONLY
    workers: Whole | None = option("processes (default: one for each core)", "N")
    ray: str | None = option(
        "run on a Ray cluster, like auto or ray://host:10001; local starts one", "ADDRESS"
    )
