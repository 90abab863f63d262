"""From a Hugging Face configuration to an architecture."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from trainwright.errors import BadInput, UnknownName
from trainwright.model import config_dense as dense
from trainwright.model import config_encoders as encoders
from trainwright.model import config_experts as experts
from trainwright.model.architecture import Architecture
from trainwright.model.config_fields import Config, Fields

# A family is one function and one line here.
FAMILIES: Mapping[str, Callable[[Config], Fields]] = MappingProxyType(
    {
        "bert": encoders.bert,
        "bloom": dense.bloom,
        "dbrx": experts.dbrx,
        "deepseek_v2": experts.deepseek_v2,
        "deepseek_v3": experts.deepseek_v3,
        "falcon": dense.falcon,
        "gemma": dense.gemma,
        "gemma2": dense.gemma2,
        "gemma3": dense.gemma3,
        "gemma3_text": dense.gemma3_text,
        "gpt2": dense.gpt2,
        "gpt_neox": dense.gpt_neox,
        "gpt_oss": experts.gpt_oss,
        "gptj": dense.gptj,
        "grok-1": experts.grok_1,
        "kimi_k2": experts.deepseek_v3,
        "llama": dense.llama,
        "llama4": experts.llama4,
        "llama4_text": experts.llama4_text,
        "mbart": encoders.mbart,
        "mistral": dense.mistral,
        "mixtral": experts.mixtral,
        "mpt": dense.mpt,
        "nemotron": dense.nemotron,
        "olmo2": dense.olmo2,
        "opt": dense.opt,
        "phi3": dense.phi3,
        "qwen2": dense.qwen2,
        "qwen2_moe": experts.qwen2_moe,
        "qwen3": dense.qwen3,
        "qwen3_moe": experts.qwen3_moe,
        "swinv2": encoders.swinv2,
        "t5": encoders.t5,
        "vit": encoders.vit,
    }
)


def parse_config(config: Mapping[str, Any], name: str, source: str = "config.json") -> Architecture:
    """The architecture that a Hugging Face configuration describes; errors name `source`."""
    family = config.get("model_type")
    if not isinstance(family, str):
        raise BadInput(f"{source}: field", "model_type", "is missing", "use the config.json of a model")
    if family not in FAMILIES:
        raise UnknownName(f"{source}: model_type", family, FAMILIES)
    return Architecture(name=name, **FAMILIES[family](Config(values=config, source=source)))
