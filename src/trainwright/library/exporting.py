"""A plan in the words of another tool."""

from trainwright.cli.export import text_of
from trainwright.cli.handed import parse_handed
from trainwright.library.options import options_of
from trainwright.library.planning import Plans
from trainwright.plan.strategy import Strategy
from trainwright.report.summary import Summary


def export(
    plan: str | Strategy | Summary | Plans,
    to: str,
    *,
    model: str | None = None,
    cluster: str | None = None,
    batch: int | None = None,
    seq: int | None = None,
    lenient: bool = False,
    **options: object,
) -> str:
    """What a tool reads to follow a plan; a knob that it cannot express raises, or leniently is a comment.

    `to` and further options are those of `trainwright export`; Chakra traces are files, and left to that.
    """
    best = plan.best if isinstance(plan, Plans) else plan
    if isinstance(best, Summary):
        batch, seq, best = batch or best.global_batch, seq or best.seq, best.strategy
    stated = {"to": to, "model": model, "cluster": cluster, "batch": batch, "seq": seq, "lenient": lenient}
    asked = options_of("export", [str(best)], stated | options)
    return text_of(asked, parse_handed(asked))
