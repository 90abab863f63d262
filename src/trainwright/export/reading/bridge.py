"""A plan from a Python function that sets a configuration of Megatron-Bridge or NeMo."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from trainwright.errors import BadInput, TrainwrightError, UnknownName
from trainwright.export.megatron_bridge import PRECISIONS
from trainwright.export.pipeline_layout import layout_of_names
from trainwright.export.reading.bridge_values import BridgeValues, read_values
from trainwright.export.reading.configured import Configured, StatedSettings
from trainwright.export.reading.known_settings import load_known, load_table
from trainwright.export.reading.launch_flags import Flags
from trainwright.export.reading.megatron import plan_of_flags
from trainwright.export.reading.shell_values import value_of
from trainwright.export.reading.torchtitan_registry import UnresolvedValue
from trainwright.model.load import load_entry

_READ_SECTIONS = ("model", "ddp", "optimizer", "train", "dist")
_NEEDED = (
    "model.tensor_model_parallel_size", "model.pipeline_model_parallel_size", "train.micro_batch_size",
    "train.global_batch_size",
)  # fmt: skip
_LENGTHS = ("model.seq_length", "dataset.seq_length", "dataset.sequence_length")
_REFUSED = {
    "model": ("changes the recipe's model, which is not read", "state --model"),
    "parallelism": ("splits the job in a way that is not read", "describe the plan as a strategy"),
    "job": ("belongs to another job than GPT pretraining", "name a configuration of pretraining"),
}
_DTYPES = {
    "torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.uint8": "fp8",
}  # fmt: skip
_FP8 = {"tensorwise": "fp8", "delayed": "fp8", "mxfp8": "fp8"}  # recipes of one precision


def read_bridge(text: str, source: str, stated: StatedSettings) -> Configured:
    """The plan that one function of the text sets."""
    found = read_values(text, source, stated.function)
    values = {name: value for name, value in found.values.items() if name != "mixed_precision"}
    kinds = {name: class_of(name) for name in values}
    _check_scope(values, kinds, source, model_stated=stated.architecture is not None)
    for name in _NEEDED:
        if name not in values and not (name == "train.micro_batch_size" and stated.micro_batch):
            rule = f"is not in the text, and {found.base or 'the recipe'} sets it"
            raise BadInput(f"{source}: {name}", "", rule, "write its value")
    model = _catalog_model(found.base)
    if stated.architecture is None and model:
        stated_model = replace(stated, architecture=load_entry(model).architecture)
    else:
        stated_model = stated
    precision, notes = _precision(found, source)
    if stated.precision is None:
        stated_model = replace(stated_model, precision=precision)
    stored = values | _low_weights(values, precision)
    read = plan_of_flags(_flags(stored, found, source), stated_model)
    return replace(
        read, stack="nemo", model=None if stated.architecture else model, architecture=None,
        notes=(*_not_considered(values, kinds), *notes, *_call_notes(found), *read.notes),
    )  # fmt: skip


def class_of(name: str) -> str:
    """The class of a field: its own, or that of the Megatron-LM flag of the same name."""
    kind = load_known("bridge").class_of(name)
    if kind != "unknown":
        return kind
    return load_known("megatron").class_of(name.partition(".")[2].replace("_", "-"))


def _low_weights(values: Mapping[str, object], precision: str) -> dict[str, object]:
    """Whether weights are kept in fp8 or fp4: the recipe's own unless it is stated."""
    name = f"mixed_precision.{precision}_param_gather"
    if precision not in ("fp8", "fp4") or name in values:
        return {}
    return {name: True}


def _is_off(value: object) -> bool:
    return value is None or value is False or value in ([], (), "none", "no_shard")


def _check_scope(
    values: Mapping[str, object], kinds: Mapping[str, str], source: str, *, model_stated: bool
) -> None:
    for name, value in values.items():
        kind = kinds[name]
        if kind == "unknown":
            raise UnknownName(f"{source}: field", name, _known_names())
        if isinstance(value, UnresolvedValue) and kind == "understood":
            rule = f'is "{value.text}", which is not a plain value'
            raise BadInput(f"{source}: {name}", "", rule, "write the value")
        if kind in _REFUSED and not _is_off(value) and not (kind == "model" and model_stated):
            rule, remedy = _REFUSED[kind]
            raise BadInput(f"{source}: {name}", str(value)[:80], rule, remedy)


def _known_names() -> list[str]:
    known, flags = load_known("bridge"), load_known("megatron")
    own = [*known.understood, *known.harmless, *known.matters]
    theirs = [*flags.understood, *flags.matters]
    return [*own, *(f"{section}.{name.replace('-', '_')}" for section in _READ_SECTIONS for name in theirs)]


def _not_considered(values: Mapping[str, object], kinds: Mapping[str, str]) -> Iterator[str]:
    matters = [name for name, value in values.items() if kinds[name] == "matters" and not _is_off(value)]
    if matters:
        yield f"Not considered, and it matters: {', '.join(matters)}."


def _call_notes(found: BridgeValues) -> Iterator[str]:
    if found.calls:
        yield f"Not read: {', '.join(dict.fromkeys(found.calls))}, which may change the configuration."


def _flags(values: Mapping[str, object], found: BridgeValues, source: str) -> Flags:
    """The fields by the names of Megatron-LM's flags."""
    renamed = load_table("bridge")["flags"]
    words: dict[str, tuple[object, ...]] = {}
    for name, value in _settled(values, source).items():
        if class_of(name) != "understood" or value is None or value is False:
            continue
        section, _, field = name.partition(".")
        flag = renamed.get(name, field.replace("_", "-") if section in _READ_SECTIONS else "")
        if flag:
            value = _DTYPES.get(str(value), value)
            words[flag] = () if value is True else tuple(value) if isinstance(value, list) else (value,)
    return Flags(
        values={name: tuple(value_of(str(each)) for each in given) for name, given in words.items()},
        source=source, environment=found.environment,
    )  # fmt: skip


def _settled(values: Mapping[str, object], source: str) -> dict[str, object]:
    """The fields with those that depend on others settled."""
    found = dict(values)
    lengths = [found[name] for name in _LENGTHS if found.get(name) is not None]
    if len({str(each) for each in lengths}) > 1:
        rule = f"is not that of the dataset, {lengths[1]}"
        raise BadInput(f"{source}: model.seq_length", str(lengths[0]), rule, "state one length")
    layout = found.get("model.pipeline_model_parallel_layout")
    if isinstance(layout, list | tuple):
        chunks = layout_of_names(layout, f"{source}: model.pipeline_model_parallel_layout").chunks
        found["model.pipeline_model_parallel_layout"] = "|".join(chunks)
    if layout:
        found.pop("model.virtual_pipeline_model_parallel_size", None)
    if found.get("mixed_precision.grad_reduce_in_fp32") is not None:  # which has the last word
        wide = found.pop("mixed_precision.grad_reduce_in_fp32") is True
        found["ddp.grad_reduce_in_bf16"], found["ddp.accumulate_allreduce_grads_in_fp32"] = not wide, wide
    if found.get("model.cpu_offloading") is not True:
        found.pop("model.cpu_offloading_num_layers", None)
    if found.get("comm_overlap.overlap_grad_reduce") is not None:  # which has the last word
        found["ddp.overlap_grad_reduce"] = found["comm_overlap.overlap_grad_reduce"]
    if True not in (found.get("ddp.use_megatron_fsdp"), found.get("dist.use_megatron_fsdp")):
        found.pop("ddp.data_parallel_sharding_strategy", None)
    return found


def _precision(found: BridgeValues, source: str) -> tuple[str, tuple[str, ...]]:
    """The precision, and what to say of it."""
    if "mixed_precision" not in found.values:
        return "bf16", ("Precision is not in the text: bf16 is assumed (see --precision).",)
    name = found.values["mixed_precision"]
    if name is None:
        half = found.values.get("model.fp16") is True
        return "bf16" if found.values.get("model.bf16") is True else "fp16" if half else "fp32", ()
    known = {theirs: _FP8.get(ours, ours) for ours, theirs in PRECISIONS.items()} | load_table("bridge")[
        "precisions"
    ]
    if not isinstance(name, str) or name not in known:
        shown = name.text if isinstance(name, UnresolvedValue) else str(name)
        raise UnknownName(f"{source}: mixed_precision", shown, known)
    return known[name], ()


def _catalog_model(recipe: str) -> str | None:
    """The model of the catalog that a recipe is named for."""
    name = recipe
    for end in ("_config", "_pretrain", "_recipe"):
        name = name.removesuffix(end)
    for candidate in (name, name.replace("_", "-"), name.replace("llama31", "llama3").replace("_", "-")):
        try:
            return load_entry(candidate).architecture.name if candidate else None
        except TrainwrightError:
            continue
    return None
