"""A process in which Megatron-Bridge validates recipes under exported plans; prints what it made of them."""

import importlib.abc
import importlib.machinery
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import megatron.core.distributed
import megatron.core.models.gpt
import megatron.core.optimizer  # before there seems to be a Transformer Engine
import megatron.core.utils
from packaging.version import Version

# Kernels, data loaders and trackers that need other machines, and that no configuration needs.
_ABSENT = (
    "transformer_engine", "transformer_engine_torch", "mamba_ssm", "causal_conv1d", "nvidia_resiliency_ext",
    "wandb", "mlflow", "open_clip", "timm", "qwen_vl_utils", "fla", "modelopt", "nemo_run", "datasets",
    "triton", "megatron.energon", "webdataset", "comet_ml",
)  # fmt: skip


class AnyName(type):
    """A class whose every attribute is another such class, and which leaves what it decorates as it is."""

    def __getattr__(cls, name: str) -> "AnyName":
        if name.startswith("__"):
            raise AttributeError(name)
        return AnyName(name, (), {})

    def __call__(cls, *values: Any, **options: Any) -> Any:
        return values[0] if values and callable(values[0]) else AnyName("called", (), {})

    def __getitem__(cls, name: object) -> "AnyName":
        return cls

    def __iter__(cls) -> Iterator[object]:
        return iter(())


class Absent(ModuleType):
    """A module that is not there."""

    __path__ = ()

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return AnyName(name, (), {})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what nothing else found and is known to be absent."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        known = any(name == each or name.startswith(f"{each}.") for each in _ABSENT)
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if known else None

    def create_module(self, spec: Any) -> ModuleType:
        return Absent(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


sys.meta_path.append(Finder())
megatron.core.utils.get_te_version = lambda: Version("2.10")

from megatron.bridge.models import GPTModelProvider  # noqa: E402
from megatron.bridge.recipes.common import _pretrain_common  # noqa: E402
from megatron.bridge.training.comm_overlap import CommOverlapConfig  # noqa: E402
from megatron.bridge.training.config import ConfigContainer, runtime_config_update  # noqa: E402


def recipe() -> ConfigContainer:
    """What most recipes are, with settings that a plan must not leave behind."""
    config = _pretrain_common()
    config.model = GPTModelProvider(
        num_layers=32, hidden_size=512, num_attention_heads=8, seq_length=2048, num_moe_experts=8,
        moe_token_dispatcher_type="alltoall", recompute_granularity="full", recompute_method="uniform",
        recompute_num_layers=2, tensor_model_parallel_size=8,
    )  # fmt: skip
    config.comm_overlap = CommOverlapConfig(tp_comm_overlap=False)
    return config


def understood(path: Path, devices: int) -> dict[str, object]:
    """The knobs of a recipe after a plan, as Megatron-Bridge is about to train with them."""
    os.environ["WORLD_SIZE"] = str(devices)
    space: dict[str, Any] = {}
    exec(path.read_text(encoding="utf-8"), space)
    config = space["apply_plan"](recipe())
    runtime_config_update(config)
    model, ddp, optimizer = config.model, config.ddp, config.optimizer
    return {
        "degrees": [config.data_parallel_size, model.tensor_model_parallel_size,
                    model.context_parallel_size, model.pipeline_model_parallel_size,
                    model.virtual_pipeline_model_parallel_size or 1, model.expert_model_parallel_size],
        "sp": model.sequence_parallel, "recompute": model.recompute_granularity or "none",
        "distributed": [ddp.use_distributed_optimizer, optimizer.use_distributed_optimizer],
        "fsdp": ddp.data_parallel_sharding_strategy if ddp.use_megatron_fsdp else "",
        "instances": ddp.num_distributed_optimizer_instances,
        "overlap": [ddp.overlap_grad_reduce, ddp.overlap_param_gather, bool(model.overlap_p2p_comm)],
        "offload": optimizer.optimizer_cpu_offload, "dtype": str(model.params_dtype),
        "fp8": model.fp8 or "", "batch": [config.train.micro_batch_size, config.train.global_batch_size],
        "seq": [model.seq_length, config.dataset.seq_length],
        "inside": config.dist.use_tp_pp_dp_mapping,
    }  # fmt: skip


def main(words: list[str]) -> None:
    """Validate each file on the devices stated after it."""
    told = [
        understood(Path(path), int(devices)) for path, devices in zip(words[::2], words[1::2], strict=True)
    ]
    print("PARSED " + json.dumps(told))


main(sys.argv[1:])
