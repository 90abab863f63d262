"""The parts of a multimodal configuration beside its text model, and how many parameters they have."""

from collections.abc import Mapping
from typing import Any

from trainwright.model.config_fields import Config

_TEXT = "text_config"
_SENSES = ("vision", "audio", "speech", "video", "image", "talker", "tower", "code2wav", "perceiver")


def tower_keys(config: Config) -> tuple[str, ...]:
    """The keys under which a configuration describes further models than that of the text."""
    return tuple(
        key
        for key, value in config.values.items()
        if key.endswith("_config") and key != _TEXT and _is_model(key, value)
    )


def _is_model(key: str, value: object) -> bool:
    named = any(word in key for word in _SENSES)
    return isinstance(value, Mapping) and (named or "num_hidden_layers" in value)


def left_out(config: Config, text_hidden: int) -> str:
    """What of a multimodal model is not planned, in words; empty if nothing is left out."""
    keys = tower_keys(config)
    if not keys:
        return ""
    count = _vision_parameters(config, text_hidden) if keys == ("vision_config",) else 0
    config.seen.update((*keys, "mm_tokens_per_image", "projector_hidden_act", "multimodal_projector_bias"))
    size = f", {count:,} parameters with its projector" if count else ", whose parameters are not counted"
    return f"Text only: {', '.join(keys)} is left out{size}."


def _vision_parameters(config: Config, text_hidden: int) -> int:
    """Parameters of a SigLIP tower and the projector of Gemma 3; 0 for towers of other kinds."""
    values: Mapping[str, Any] = config.values["vision_config"]
    vision = Config(values=values, source=f"{config.source}: vision_config")
    if values.get("model_type") != "siglip_vision_model" or values.get("vision_use_head"):
        return 0
    hidden, ffn = vision.whole("hidden_size"), vision.whole("intermediate_size")
    patch, image = max(vision.whole("patch_size"), 1), vision.whole("image_size")
    embedding = vision.whole("num_channels", 3) * patch**2 * hidden + hidden + (image // patch) ** 2 * hidden
    layer = 4 * (hidden**2 + hidden) + 4 * hidden + 2 * hidden * ffn + ffn + hidden
    tower = embedding + vision.whole("num_hidden_layers") * layer + 2 * hidden
    return tower + hidden * text_hidden + hidden
