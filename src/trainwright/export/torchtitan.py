"""A plan as a configuration of torchtitan 0.3: a Python function that returns one."""

from collections.abc import Iterator

from trainwright.export.canonical import canonical
from trainwright.export.flags import ALLOCATOR, comment
from trainwright.export.handover import Handover
from trainwright.export.stage_layers import chunk_modules
from trainwright.plan.recompute_policies import SELECTIVE_AC
from trainwright.plan.strategy import Strategy

NAME = "torchtitan"
SCHEDULES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved1F1B"}
RESHARD = {2: "never", 3: "always"}
BF16_MOMENTS = "fused_opt_states_bf16"
# Models of the catalog that torchtitan has: its module, the function of its configuration, its flavor.
MODELS = {
    "llama3-8b": ("llama3", "llama3_8b", "8B"),
    "llama3-70b": ("llama3", "llama3_70b", "70B"),
    "llama3-405b": ("llama3", "llama3_405b", "405B"),
    "qwen3-0.6b": ("qwen3", "qwen3_0_6b", "0.6B"),
    "qwen3-1.7b": ("qwen3", "qwen3_1_7b", "1.7B"),
    "qwen3-14b": ("qwen3", "qwen3_14b", "14B"),
    "qwen3-32b": ("qwen3", "qwen3_32b", "32B"),
    "qwen3-30b-a3b": ("qwen3", "qwen3_30b_a3b", "30B-A3B"),
    "deepseek-v2-lite": ("deepseek_v3", "deepseek_v3_16b", "16B"),
    "deepseek-v3": ("deepseek_v3", "deepseek_v3_671b", "671B"),
    "gpt-oss-20b": ("gpt_oss", "gpt_oss_20b", "20b"),
    "gpt-oss-120b": ("gpt_oss", "gpt_oss_120b", "120b"),
}
_DEBUG = ("llama3", "llama3_debugmodel", "debugmodel")


def remarks(handover: Handover) -> Iterator[str]:
    """Where the configuration means something a little different."""
    strategy = canonical(handover.strategy)
    if strategy.zero == 2:
        yield "zero2: weights are sharded between steps, and whole from the forward to the backward."
    if handover.architecture is None:
        yield "No model was stated: put the function of yours in the place of llama3_debugmodel."


def parallelism(handover: Handover, head: str = "lm_head") -> dict[str, object]:
    """The fields of `parallelism` that both forms have; `head` is the name of the output layer."""
    strategy = canonical(handover.strategy)
    values: dict[str, object] = dict(_data_parallel(strategy))
    values["tensor_parallel_degree"] = strategy.tp
    values["enable_sequence_parallel"] = strategy.sp
    values["context_parallel_degree"] = strategy.cp
    values["pipeline_parallel_degree"] = strategy.pp
    if strategy.pp > 1:
        values["pipeline_parallel_schedule"] = SCHEDULES[strategy.schedule]
        values["pipeline_parallel_microbatch_size"] = strategy.micro_batch
        if handover.architecture is None:
            values["pipeline_parallel_first_stage_less_layers"] = 0
            values["pipeline_parallel_last_stage_less_layers"] = 0
        else:
            modules = chunk_modules(handover, "tok_embeddings", "layers", ("norm", head))
            values["module_fqns_per_model_part"] = modules
    values["expert_parallel_degree"] = strategy.ep
    return values


def _data_parallel(strategy: Strategy) -> Iterator[tuple[str, object]]:
    """How many copies, and how many shards of each: torchtitan multiplies the latter by cp."""
    if strategy.zero == 0:
        yield "data_parallel_replicate_degree", strategy.dp
        yield "data_parallel_shard_degree", 1
        return
    shards = (strategy.shard or strategy.dp * strategy.cp) // strategy.cp
    yield "data_parallel_replicate_degree", strategy.dp // shards
    yield "data_parallel_shard_degree", shards
    yield "fsdp_reshard_after_forward", RESHARD[strategy.zero]


def training(handover: Handover) -> dict[str, object]:
    """The fields of `training`: a pipeline takes all its microbatches at once, else they accumulate."""
    strategy = handover.strategy
    local = strategy.micro_batch * (handover.microbatches if strategy.pp > 1 else 1)
    values: dict[str, object] = {"local_batch_size": local, "global_batch_size": handover.global_batch}
    if handover.seq:
        values["seq_len"] = handover.seq
    values["mixed_precision_param"] = "float32" if strategy.precision == "fp32" else "bfloat16"
    return values


def render(handover: Handover, notes: list[str]) -> str:
    """The Python module."""
    arch = handover.architecture
    module, function, flavor = MODELS.get(arch.name, _DEBUG) if arch else _DEBUG
    lines = [f"    config.parallelism.{name} = {value!r}" for name, value in parallelism(handover).items()]
    lines += [f"    config.training.{name} = {value!r}" for name, value in training(handover).items()]
    lines += [f"    config.activation_checkpoint = {_checkpoint(handover.strategy)}"]
    lines += _optimizer(handover.optimizer)
    if handover.strategy.pp > 1 or handover.strategy.ep > 1:  # under which it refuses graphs of CUDA
        lines += ["    config.training.disable_cuda_graphs = True"]
    if handover.strategy.precision == "fp8":
        lines += [_FLOAT8.format(flavor=flavor)]
    return _MODULE.format(
        notes=comment(notes), launch=_launch(handover), module=module, function=function,
        imports=_imports(handover, module), body="\n".join(lines),
    )  # fmt: skip


def _checkpoint(strategy: Strategy) -> str:
    return {"none": "None", SELECTIVE_AC: "SelectiveAC.Config()", "full": "FullAC.Config()"}[
        strategy.recompute
    ]


def _optimizer(name: str) -> list[str]:
    """The optimizer that is stated: AdamW with moments in fp32 or in bf16."""
    implementation = {"adamw": "fused", "adamw-bf16": BF16_MOMENTS}
    return [f"    config.optimizer.implementation = {implementation[name]!r}"] if name else []


def _imports(handover: Handover, module: str) -> str:
    strategy, lines = handover.strategy, []
    if strategy.precision == "fp8":
        lines.append("from torchtitan.components.quantization import Float8LinearConverter")
    if strategy.recompute != "none":
        name = "FullAC" if strategy.recompute == "full" else "SelectiveAC"
        lines.append(f"from torchtitan.distributed.activation_checkpoint import {name}")
    if strategy.precision == "fp8":
        lines.append(f"from torchtitan.models.{module} import model_registry")
    return "".join(f"{line}\n" for line in lines)


def _launch(handover: Handover) -> str:
    return (
        f"{ALLOCATOR} \\\n"
        f"#     torchrun --nnodes={handover.nodes} --nproc-per-node={handover.processes_per_node} "
        "--rdzv-backend=c10d --rdzv-endpoint=HOST:29500 \\\n"
        "#       -m torchtitan.train --module MODULE --config trainwright_plan"
    )


_FLOAT8 = """    config.model_spec = model_registry(
        "{flavor}", converters=[Float8LinearConverter.Config(model_compile_enabled=config.compile.enable)]
    )"""
_MODULE = '''{notes}# Save it as a module that Python finds, say MODULE.py, and on each node:
#   {launch}

{imports}from torchtitan.models.{module}.config_registry import {function}
from torchtitan.trainer import Trainer


def trainwright_plan() -> Trainer.Config:
    """The plan, as a configuration of the trainer."""
    config = {function}()
{body}
    return config
'''
