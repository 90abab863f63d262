"""The class that a configuration is saved for, and whether its head is the one that is planned."""

import re

from trainwright.errors import BadInput
from trainwright.model.config_fields import Config, Fields

_LANGUAGE = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "WithLMHead", "LMHead")
_HEADS = {
    "decoder": _LANGUAGE,
    "encoder_decoder": ("ForConditionalGeneration", "WithLMHeadModel"),
    "encoder": ("ForPreTraining", "ForMaskedLM"),
    "vision": ("ForImageClassification",),
    "swin": ("ForImageClassification",),
}


def check_head(config: Config, fields: Fields) -> tuple[str, ...]:
    """What to say of the class; raises for one with another head than is planned."""
    name = architecture_name(config)
    kind = fields.get("kind", "decoder")
    two = config.flag("is_encoder_decoder", kind == "encoder_decoder")
    if two != (kind == "encoder_decoder"):
        rule = f"is not that of the family, which is planned as {kind.replace('_', '-')}"
        raise BadInput(f"{config.source}: is_encoder_decoder", two, rule, "describe the model in TOML")
    if not name or name.endswith(_HEADS.get(kind, ())):
        return ()
    thing = f"{config.source}: architectures"
    if re.fullmatch(r"[A-Za-z0-9_]+Model", name) and not name.endswith(("RewardModel", "EncoderModel")):
        return (f"Planned with the head that it is pretrained with, which {name} does not have.",)
    raise BadInput(thing, name, "has another head than that of pretraining", "name a model of pretraining")


def architecture_name(config: Config) -> str:
    """The class that a configuration names first."""
    config.seen.add("architectures")
    found = config.values.get("architectures")
    return found[0] if isinstance(found, list) and found and isinstance(found[0], str) else ""
