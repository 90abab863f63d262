"""A plan as the TOML that torchtitan read before release 0.3."""

from collections.abc import Iterator, Mapping

from trainwright.export import torchtitan
from trainwright.export.canonical import canonical
from trainwright.export.flags import ALLOCATOR, comment
from trainwright.export.handover import Handover
from trainwright.plan.recompute_policies import SELECTIVE_AC

NAME = "torchtitan (TOML)"
ROTATE = {"ring": "alltoall", "allgather": "allgather"}
# Models of the catalog that it had: its name for the family, and for the size.
MODELS = {
    "llama3-8b": ("llama3", "8B"), "llama3-70b": ("llama3", "70B"), "llama3-405b": ("llama3", "405B"),
    "qwen3-0.6b": ("qwen3", "0.6B"), "qwen3-1.7b": ("qwen3", "1.7B"), "qwen3-4b": ("qwen3", "4B"),
    "qwen3-8b": ("qwen3", "8B"), "qwen3-14b": ("qwen3", "14B"), "qwen3-32b": ("qwen3", "32B"),
    "qwen3-30b-a3b": ("qwen3", "30B-A3B"),
    "deepseek-v2-lite": ("deepseek_v3", "16B"), "deepseek-v3": ("deepseek_v3", "671B"),
}  # fmt: skip


def remarks(handover: Handover) -> Iterator[str]:
    """Where the configuration means something a little different, and how it is started."""
    yield from torchtitan.remarks(handover)
    yield f"{ALLOCATOR} torchrun … -m torchtitan.train --job.config_file THIS"


def render(handover: Handover, notes: list[str]) -> str:
    """The TOML."""
    tables = {"model": _model(handover), "training": torchtitan.training(handover)}
    tables |= {"parallelism": _parallelism(handover)}
    recompute = handover.strategy.recompute
    by_op: dict[str, object] = {"mode": "selective", "selective_ac_option": "op"}
    tables |= {"activation_checkpoint": by_op if recompute == SELECTIVE_AC else {"mode": recompute}}
    if handover.optimizer:  # AdamW is all that it has
        tables["optimizer"] = {"name": "AdamW", "implementation": "fused"}
    body = "\n".join(_table(name, values) for name, values in tables.items() if values)
    return comment(notes) + "\n" + body


def _model(handover: Handover) -> dict[str, object]:
    arch = handover.architecture
    values: dict[str, object] = {}
    if arch and arch.name in MODELS:
        values["name"], values["flavor"] = MODELS[arch.name]
    if handover.strategy.precision == "fp8":
        values["converters"] = ["float8"]
    return values


def _parallelism(handover: Handover) -> dict[str, object]:
    strategy = canonical(handover.strategy)
    values = torchtitan.parallelism(handover, "output")
    del values["enable_sequence_parallel"]  # it always was
    if strategy.cp > 1:
        values["context_parallel_rotate_method"] = ROTATE[strategy.cp_kind]
    values["expert_tensor_parallel_degree"] = strategy.etp
    return values


def _table(name: str, values: Mapping[str, object]) -> str:
    lines = "".join(f"{key} = {_value(value)}\n" for key, value in values.items())
    return f"[{name}]\n{lines}"


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(_value(each) for each in value)}]"
    return f'"{value}"' if isinstance(value, str) else str(value)
