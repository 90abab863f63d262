"""A process in which torchtitan parses configurations; prints what it understood as JSON."""

import json
import sys
from types import ModuleType, SimpleNamespace

import torch._inductor.compile_fx  # noqa: F401  # while it still sees that there is no triton


class Kernels(ModuleType):
    """triton, where there is none: modules import it for kernels that no configuration needs."""

    __path__ = ()

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return Kernels(name)

    def __call__(self, *values: object, **options: object) -> object:
        return values[0] if values and callable(values[0]) else Kernels("called")


def main(folder: str, modules: list[str]) -> None:
    """Parse a configuration from each module, with torchtitan's own checks."""
    try:
        import triton  # noqa: F401
    except ImportError:
        for name in ("triton", "triton.language", "triton.runtime", "triton.tools"):
            sys.modules[name] = Kernels(name)
    from torchtitan.config.manager import ConfigManager
    from torchtitan.distributed.pipeline_parallel import _get_pipeline_metadata

    sys.path.insert(0, folder)
    told = []
    for module in modules:
        config = ConfigManager().parse_args(["--module", module, "--config", "trainwright_plan"])
        type(config).__post_init__(config)
        pp, model = config.parallelism.pipeline_parallel_degree, config.model_spec.model
        stages = _get_pipeline_metadata(SimpleNamespace(pp=pp), config.parallelism, model)[0] if pp > 1 else 1
        told.append(
            {
                "parallelism": {
                    name: getattr(config.parallelism, name)
                    for name in ("data_parallel_replicate_degree", "data_parallel_shard_degree",
                                 "tensor_parallel_degree", "context_parallel_degree",
                                 "pipeline_parallel_degree", "expert_parallel_degree")
                },
                "local": config.training.local_batch_size, "batch": config.training.global_batch_size,
                "checkpoint": type(config.activation_checkpoint).__qualname__, "layers": len(model.layers),
                "stages": stages,
            }
        )  # fmt: skip
    print("PARSED " + json.dumps(told))


main(sys.argv[1], sys.argv[2:])
