"""Hugging Face architectures in small random configurations, built by transformers itself."""

from collections.abc import Mapping

import transformers
from torch import nn

from tests.architectures.hugging_face_decoders import DECODERS
from tests.architectures.hugging_face_others import CLASSIFIERS, ENCODERS, IMAGES, TRANSLATORS
from tests.architectures.hugging_face_sizes import Sizes
from tests.architectures.subject import (
    MakeInputs,
    Subject,
    classified_tokens,
    images,
    masked_tokens,
    tokens,
    translated_tokens,
)

_IMAGE_SIZES = {
    **dict.fromkeys(("swin", "swinv2", "convnext", "convnextv2", "resnet", "poolformer", "segformer"), 32),
    **dict.fromkeys(("vit", "beit", "dinov2", "vit_msn", "clip_vision"), 12),
}


def build_module(config: str, model: str, sizes: Sizes) -> nn.Module:
    """A model with random weights, without dropout and without a cache of keys and values."""
    made = getattr(transformers, config)(**sizes)
    for name, value in vars(made).items():
        if isinstance(value, float) and ("drop" in name or name.endswith("pdrop")):
            setattr(made, name, 0.0)
    for name in ("use_cache", "output_hidden_states", "output_attentions"):
        if hasattr(made, name):
            setattr(made, name, False)
    built: nn.Module = getattr(transformers, model)(made)
    return built


def _subjects(table: Mapping[str, tuple[str, str, Sizes]], inputs: MakeInputs) -> dict[str, Subject]:
    return {
        name: Subject(
            name=name,
            kind="Hugging Face",
            inputs=images(_IMAGE_SIZES[name]) if name in _IMAGE_SIZES else inputs,
            build=lambda stated=stated: build_module(*stated),
            experts="experts" in str(stated[2]),  # type: ignore[misc]
            sequence=table is not IMAGES,
        )
        for name, stated in table.items()
    }


def subjects() -> dict[str, Subject]:
    """All of them, by name."""
    return {
        **_subjects(DECODERS, tokens),
        **_subjects(ENCODERS, masked_tokens),
        **_subjects(CLASSIFIERS, classified_tokens),
        **_subjects(TRANSLATORS, translated_tokens),
        **_subjects(IMAGES, images(16)),
    }
