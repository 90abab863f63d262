"""What to change about a configuration that is in use."""

from trainwright.cli.configured import parse_configured, parse_job
from trainwright.library.options import options_of
from trainwright.search.advice import Advice
from trainwright.search.advice import advise as advise_on


def advise(config: str, cluster: str, *, model: str | None = None, **options: object) -> Advice:
    """How good a configuration is, what each change would gain, and the best there is.

    `config` is a file of Megatron-LM's, torchtitan's or DeepSpeed's, or a strategy; further options are those
    of `trainwright advise`.
    """
    asked = options_of("advise", [config, cluster], {"model": model} | options)
    configured = parse_configured(asked)
    _, job = parse_job(asked, configured)
    return advise_on(job, configured.strategy)
