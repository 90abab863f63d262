"""What to change about a configuration that is in use."""

from dataclasses import replace
from pathlib import Path

from trainwright.cli.advise import advised, save_advised
from trainwright.library.options import options_of
from trainwright.search.advice import Advice


def advise(
    config: str | Path, cluster: str | Path, *, model: str | Path | None = None, **options: object
) -> Advice:
    """How good a configuration is, what each change would gain, and the best there is.

    `config` is a file of Megatron-LM's, torchtitan's or DeepSpeed's, or a strategy; further options are those
    of `trainwright advise`, with variables of a script as `set={"TP": 4}`. `notes` of the answer say what
    matters and is not considered.
    """
    asked = options_of("advise", [config, cluster], {"model": model} | options)
    found = advised(asked)
    save_advised(asked, found)
    return replace(found.advice, notes=found.notes)
