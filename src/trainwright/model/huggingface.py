"""From a Hugging Face configuration to an architecture."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from trainwright.errors import BadInput
from trainwright.model import config_dense as dense
from trainwright.model import config_encoders as encoders
from trainwright.model import config_experts as experts
from trainwright.model.architecture import Architecture
from trainwright.model.build import build_graph
from trainwright.model.config_fields import Config, Fields
from trainwright.model.config_heads import check_head
from trainwright.model.config_layers import with_layer_types
from trainwright.model.config_towers import left_out
from trainwright.model.config_unread import check_unread
from trainwright.model.graph import parameters

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
    """The architecture that a Hugging Face configuration describes; errors name `source`.

    A part that is not planned is said in `left_out`, and a model without its towers is named as text only.
    """
    family = config.get("model_type")
    if not isinstance(family, str):
        raise BadInput(f"{source}: field", "model_type", "is missing", "use the config.json of a model")
    if family not in FAMILIES:
        raise _unknown_family(family, source)
    read = Config(values=config, source=source)
    read.seen.add("model_type")
    fields = FAMILIES[family](read)
    text = read.parts.get("text_config", read)
    fields = with_layer_types(text, fields)
    notes = [*check_head(read, fields)]
    towers = left_out(read, int(fields["hidden"]))
    if not towers and family in _MULTIMODAL:
        towers = "Text only: the vision tower, which the configuration does not describe, is left out."
    predicted = text.whole("num_nextn_predict_layers", 0)
    notes += check_unread(read)
    architecture = Architecture(name=f"{name} (text only)" if towers else name, **fields)
    if towers:
        notes.insert(0, towers)
    if predicted > 0:
        notes.append(_predicted_note(architecture, predicted))
    return replace(architecture, left_out=" ".join(notes))


_MOST_LAYERS = 10_000  # of a model whose parameters are counted
_MULTIMODAL = ("gemma3", "llama4")  # families that have a vision tower besides the text


def _unknown_family(family: str, source: str) -> BadInput:
    """What to say of a family that is not read; one that is misspelt is suggested, another one never."""
    same = [name for name in FAMILIES if _is_misspelt(family, name)]
    remedy = f'did you mean "{same[0]}"?' if same else f"use one of {', '.join(FAMILIES)}, or a TOML file"
    return BadInput(f"{source}: model_type", family, "is no family that is read", remedy)


def _is_misspelt(text: str, name: str) -> bool:
    """Whether two names differ in case or separators, or in one letter more, less or swapped inside.

    A changed letter, end or number makes another family: llava, gpt_neo and olmo3 are real ones.
    """
    text, name = (re.sub(r"[^a-z0-9]", "", each.lower()) for each in (text, name))
    if text == name:
        return True
    if len(name) < 5 or text[:1] != name[:1] or text[-1:] != name[-1:]:
        return False
    longer, shorter = sorted((text, name), key=len, reverse=True)
    if len(longer) == len(shorter):
        differ = [at for at, pair in enumerate(zip(text, name, strict=True)) if pair[0] != pair[1]]
        swapped = len(differ) == 2 and differ[1] == differ[0] + 1
        return swapped and text[differ[0]] == name[differ[1]] and text[differ[1]] == name[differ[0]]
    return any(
        longer[:at] + longer[at + 1 :] == shorter and longer[at].isalpha() for at in range(1, len(longer) - 1)
    )


def _predicted_note(architecture: Architecture, count: int) -> str:
    """What to say of layers that predict further tokens: each is a layer, two norms and a projection."""
    what = "layer that predicts" if count == 1 else "layers that predict"
    said = f"{count} {what} further tokens (num_nextn_predict_layers) left out"
    if architecture.layers > _MOST_LAYERS:
        return f"{said}."
    more = parameters(build_graph(replace(architecture, layers=architecture.layers + 1)))
    each = more - parameters(build_graph(architecture)) + 2 * architecture.hidden**2 + 3 * architecture.hidden
    return f"{said}, {count * each / 1e9:.1f} B parameters."
