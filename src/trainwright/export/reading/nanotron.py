"""A plan from nanotron's YAML."""

from collections.abc import Iterator, Mapping
from typing import Any

from trainwright.errors import BadInput, UnknownName
from trainwright.export.canonical import canonical
from trainwright.export.nanotron import DTYPES, ENGINES
from trainwright.export.reading.configured import Configured, StatedSettings
from trainwright.export.reading.known_settings import load_known, named_optimizer, optimizer_note
from trainwright.export.reading.yaml_text import check_names, flatten, matter_notes
from trainwright.model.architecture import Architecture
from trainwright.model.config_fields import Config
from trainwright.model.load import check_sizes
from trainwright.plan.strategy import Strategy


def read_nanotron(tree: Mapping[str, Any], text: str, source: str, stated: StatedSettings) -> Configured:
    """The plan of a configuration; it states on how many devices it runs."""
    known, values = load_known("nanotron"), flatten(tree, source)
    check_names(known, values, source, model_stated=stated.architecture is not None)
    config = Config(values=tree, source=source)
    parallel, tokens, model = (config.part(name) for name in ("parallelism", "tokens", "model"))
    optimizer = config.part("optimizer")
    pp, engine = parallel.whole("pp"), _engine(parallel)
    strategy = Strategy(
        dp=parallel.whole("dp"), tp=parallel.whole("tp"), pp=pp,
        cp=parallel.whole("context_parallel_size", 1),
        ep=parallel.whole("expert_parallel_size", 1), sp=_is_split_sequence(parallel),
        schedule=engine if pp > 1 else "1f1b", zero=optimizer.whole("zero_stage", 0),
        micro_batch=stated.micro_batch or tokens.whole("micro_batch_size"), recompute=_recompute(parallel),
        precision=stated.precision or _precision(model),
    )  # fmt: skip
    rounds = tokens.whole("batch_accumulation_per_replica", 1)
    seq = tokens.whole("sequence_length", 0)
    return Configured(
        strategy=canonical(strategy), global_batch=strategy.dp * strategy.micro_batch * rounds,
        stack="nanotron", seq=seq or None,
        architecture=None if stated.architecture else _model(model, seq, source),
        optimizer=named_optimizer(_optimizer(optimizer), "nanotron"),
        grad_dtype=_grad_dtype(optimizer, strategy.precision),
        notes=(*matter_notes(known, values), *_notes(optimizer, strategy.precision)),
    )  # fmt: skip


def _is_split_sequence(parallel: Config) -> bool:
    name = parallel.word("tp_mode", "ALL_REDUCE").upper()
    if name not in ("ALL_REDUCE", "REDUCE_SCATTER"):
        raise UnknownName(f"{parallel.source}: tp_mode", name, ("ALL_REDUCE", "REDUCE_SCATTER"))
    return name == "REDUCE_SCATTER"


def _engine(parallel: Config) -> str:
    name = parallel.word("pp_engine", "afab").lower()
    known = {theirs: ours for ours, theirs in ENGINES.items()}
    if name not in known:
        raise UnknownName(f"{parallel.source}: pp_engine", name, known)
    return known[name]


def _recompute(parallel: Config) -> str:
    return "full" if parallel.flag("recompute_layer", False) else "none"


def _precision(model: Config) -> str:
    name = model.word("dtype", "bfloat16").removeprefix("torch.")
    known = {theirs: ours for ours, theirs in DTYPES.items()}
    if name not in known:
        raise UnknownName(f"{model.source}: dtype", name, known)
    return known[name]


def _optimizer(optimizer: Config) -> str:
    factory = optimizer.values.get("optimizer_factory")
    return str(factory.get("name", "")) if isinstance(factory, Mapping) else ""


def _grad_dtype(optimizer: Config, precision: str) -> str:
    """The dtype of gradients where it is not fp32: that of bf16 weights."""
    narrow = optimizer.values.get("accumulate_grad_in_fp32") is False
    return "bf16" if narrow and precision == "bf16" else ""


def _notes(optimizer: Config, precision: str) -> Iterator[str]:
    yield from optimizer_note(_optimizer(optimizer), "nanotron")
    if optimizer.values.get("accumulate_grad_in_fp32") is False and precision == "fp16":
        yield "Not considered, and it matters: optimizer.accumulate_grad_in_fp32 false."


def _model(part: Config, seq: int, source: str) -> Architecture | None:
    """The decoder that the sizes describe; none if it is not a Llama."""
    if part.values.get("model_config") in (None, {}):
        return None
    sizes = part.part("model_config")
    if sizes.values.get("is_llama_config") is not True:
        rule = "is of no Llama, whose sizes alone are read"
        raise BadInput(f"{source}: model_config", "", rule, "state --model")
    found = Architecture(
        name="configured", layers=sizes.whole("num_hidden_layers"), hidden=sizes.whole("hidden_size"),
        heads=sizes.whole("num_attention_heads"), kv_heads=sizes.whole("num_key_value_heads", 0),
        ffn=sizes.whole("intermediate_size"), vocab=sizes.whole("vocab_size"), gated=True,
        max_seq=seq or sizes.whole("max_position_embeddings", 2048),
        tied=sizes.flag("tie_word_embeddings", False), qkv_bias=sizes.flag("attention_bias", False),
        output_bias=sizes.flag("attention_bias", False),
    )  # fmt: skip
    check_sizes(found, source)
    return found
