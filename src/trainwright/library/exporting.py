"""A plan in the words of another tool."""

from pathlib import Path

from trainwright.cli.export import text_of
from trainwright.errors import BadInput
from trainwright.export.targets import TARGETS
from trainwright.library.options import options_of
from trainwright.library.plans import Plans
from trainwright.output_file import save_text
from trainwright.plan.strategy import Strategy
from trainwright.report.summary import Summary


def export(
    plan: str | Path | Strategy | Summary | Plans,
    to: str,
    *,
    model: str | Path | None = None,
    cluster: str | Path | None = None,
    batch: int | None = None,
    seq: int | None = None,
    lenient: bool = False,
    **options: object,
) -> str:
    """What a tool reads to follow a plan; a knob that it cannot express raises, or leniently is a comment.

    `to` and further options are those of `trainwright export`; `out` names a file, which is written too.
    Chakra traces are many files, and left to that command.
    """
    if to == "chakra":
        rule = "is a folder of traces, not text"
        raise BadInput("to", to, rule, "call trainwright export --to chakra on a command line")
    if isinstance(plan, Plans):
        options.setdefault("optimizer", plan.optimizer)
        options.setdefault("grad_dtype", plan.grad_dtype)
    best = plan.best if isinstance(plan, Plans) else plan
    if isinstance(best, Summary):
        batch = best.global_batch if batch is None else batch
        is_written = model or (to in TARGETS and TARGETS[to].writes_seq)
        seq = best.seq if seq is None and is_written else seq
        best = best.strategy
    named = str(best) if isinstance(best, Strategy) else best
    stated = {"to": to, "model": model, "cluster": cluster, "batch": batch, "seq": seq, "lenient": lenient}
    asked = options_of("export", [named], stated | options)
    _, text = text_of(asked)
    if asked.out != "-":
        save_text(Path(asked.out), text)
    return text
