"""A process in which nanotron parses configurations; prints what it understood as JSON."""

import json
import logging
import sys
from types import ModuleType

import nanotron

# nanotron 0.4 imports its log from its configuration and the other way round, so that neither can be imported
# first: the log is the standard one here.
_LOG = ModuleType("nanotron.logging")
vars(_LOG).update({level: getattr(logging, level) for level in ("DEBUG", "INFO", "WARNING", "ERROR")})
vars(_LOG).update(
    dict.fromkeys(("log_rank", "human_format", "warn_once"), print), get_logger=logging.getLogger
)
sys.modules["nanotron.logging"] = nanotron.logging = _LOG

from nanotron.config import get_config_from_file  # noqa: E402


def main(paths: list[str]) -> None:
    """Parse each file with nanotron's own classes, which refuse keys that they do not know."""
    told = []
    for path in paths:
        config = get_config_from_file(path)
        parallel = config.parallelism
        told.append(
            {
                "degrees": [parallel.dp, parallel.tp, parallel.pp],
                "engine": type(parallel.pp_engine).__name__, "mode": parallel.tp_mode.name,
                "batch": config.global_batch_size, "micro": config.tokens.micro_batch_size,
                "zero": config.optimizer.zero_stage, "dtype": str(config.model.dtype),
                "layers": config.model.model_config.num_hidden_layers,
            }
        )  # fmt: skip
    print("PARSED " + json.dumps(told))


main(sys.argv[1:])
