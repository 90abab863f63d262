"""Hugging Face encoders, encoder-decoders and image models: classes and small sizes of each, by name."""

from collections.abc import Mapping

from tests.architectures.hugging_face_sizes import (
    ENCODER,
    GROUPED,
    LAYERS,
    SEQ2SEQ,
    T5,
    USUAL,
    VISION,
    WITH_CLASS_TOKEN,
    Sizes,
)
from tests.architectures.subject import CLASSES, VOCAB

ENCODERS: Mapping[str, tuple[str, str, Sizes]] = {
    "bert": ("BertConfig", "BertForMaskedLM", ENCODER),
    "roberta": ("RobertaConfig", "RobertaForMaskedLM", {**ENCODER, "pad_token_id": 0}),
    "xlm_roberta": ("XLMRobertaConfig", "XLMRobertaForMaskedLM", {**ENCODER, "pad_token_id": 0}),
    "camembert": ("CamembertConfig", "CamembertForMaskedLM", {**ENCODER, "pad_token_id": 0}),
    "albert": ("AlbertConfig", "AlbertForMaskedLM", {**ENCODER, "embedding_size": 16}),
    "distilbert": (
        "DistilBertConfig", "DistilBertForMaskedLM",
        {"vocab_size": VOCAB, "dim": 32, "hidden_dim": 48, "n_layers": LAYERS, "n_heads": 4, "max_position_embeddings": 32},
    ),
    "electra": ("ElectraConfig", "ElectraForMaskedLM", {**ENCODER, "embedding_size": 16}),
    "modernbert": ("ModernBertConfig", "ModernBertForMaskedLM", {**USUAL, "local_attention": 8, "cls_token_id": 1, "sep_token_id": 2}),
    "deberta": ("DebertaConfig", "DebertaForMaskedLM", {**ENCODER, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
    "deberta_v2": ("DebertaV2Config", "DebertaV2ForMaskedLM", {**ENCODER, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 8}),
    "mpnet": ("MPNetConfig", "MPNetForMaskedLM", USUAL),
    "fnet": ("FNetConfig", "FNetForMaskedLM", ENCODER),
    "esm": ("EsmConfig", "EsmForMaskedLM", {**USUAL, "mask_token_id": 3}),
    "megatron_bert": ("MegatronBertConfig", "MegatronBertForMaskedLM", ENCODER),
    "nomic_bert": ("NomicBertConfig", "NomicBertForMaskedLM", ENCODER),
    "eurobert": ("EuroBertConfig", "EuroBertForMaskedLM", GROUPED),
    "squeezebert": ("SqueezeBertConfig", "SqueezeBertForMaskedLM", {**ENCODER, "embedding_size": 32}),
    "roformer": ("RoFormerConfig", "RoFormerForMaskedLM", {**ENCODER, "embedding_size": 32}),
}  # fmt: skip

CLASSIFIERS: Mapping[str, tuple[str, str, Sizes]] = {
    "bert_classifier": ("BertConfig", "BertForSequenceClassification", {**ENCODER, "num_labels": CLASSES}),
    "roberta_classifier": ("RobertaConfig", "RobertaForSequenceClassification", {**ENCODER, "num_labels": CLASSES}),
}  # fmt: skip

TRANSLATORS: Mapping[str, tuple[str, str, Sizes]] = {
    "t5": ("T5Config", "T5ForConditionalGeneration", T5),
    "t5_gated": ("T5Config", "T5ForConditionalGeneration", {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "mt5": ("MT5Config", "MT5ForConditionalGeneration", T5),
    "bart": ("BartConfig", "BartForConditionalGeneration", SEQ2SEQ),
    "mbart": ("MBartConfig", "MBartForConditionalGeneration", SEQ2SEQ),
    "marian": ("MarianConfig", "MarianMTModel", SEQ2SEQ),
    "pegasus": ("PegasusConfig", "PegasusForConditionalGeneration", SEQ2SEQ),
    "blenderbot": ("BlenderbotConfig", "BlenderbotForConditionalGeneration", SEQ2SEQ),
    "m2m_100": ("M2M100Config", "M2M100ForConditionalGeneration", SEQ2SEQ),
}  # fmt: skip

IMAGES: Mapping[str, tuple[str, str, Sizes]] = {
    "vit": ("ViTConfig", "ViTForImageClassification", WITH_CLASS_TOKEN),
    "deit": ("DeiTConfig", "DeiTForImageClassification", VISION),
    "beit": ("BeitConfig", "BeitForImageClassification", {**WITH_CLASS_TOKEN, "use_relative_position_bias": True, "layer_scale_init_value": 0.1}),
    "dinov2": ("Dinov2Config", "Dinov2ForImageClassification", {**WITH_CLASS_TOKEN, "mlp_ratio": 2}),
    "vit_msn": ("ViTMSNConfig", "ViTMSNForImageClassification", WITH_CLASS_TOKEN),
    "clip_vision": ("CLIPConfig", "CLIPForImageClassification", {"vision_config": WITH_CLASS_TOKEN, "num_labels": CLASSES}),
    "siglip_vision": ("SiglipConfig", "SiglipForImageClassification", {"vision_config": VISION, "num_labels": CLASSES}),
    "ijepa": ("IJepaConfig", "IJepaForImageClassification", VISION),
    "swin": (
        "SwinConfig", "SwinForImageClassification",
        {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4, "num_labels": CLASSES},
    ),
    "swinv2": (
        "Swinv2Config", "Swinv2ForImageClassification",
        {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4, "num_labels": CLASSES},
    ),
    "convnext": ("ConvNextConfig", "ConvNextForImageClassification", {"hidden_sizes": [16, 32], "depths": [2, 2], "num_stages": 2, "num_labels": CLASSES}),
    "convnextv2": ("ConvNextV2Config", "ConvNextV2ForImageClassification", {"hidden_sizes": [16, 32], "depths": [2, 2], "num_stages": 2, "num_labels": CLASSES}),
    "resnet": ("ResNetConfig", "ResNetForImageClassification", {"embedding_size": 8, "hidden_sizes": [16, 32], "depths": [1, 1], "num_labels": CLASSES}),
    "poolformer": ("PoolFormerConfig", "PoolFormerForImageClassification", {"hidden_sizes": [16, 32], "depths": [2, 2], "num_encoder_blocks": 2, "patch_sizes": [7, 3], "strides": [4, 2], "padding": [2, 1], "num_labels": CLASSES}),
    "segformer": (
        "SegformerConfig", "SegformerForImageClassification",
        {"num_encoder_blocks": 2, "depths": [2, 2], "sr_ratios": [2, 1], "hidden_sizes": [16, 32], "patch_sizes": [7, 3],
         "strides": [4, 2], "num_attention_heads": [2, 4], "mlp_ratios": [2, 2], "num_labels": CLASSES},
    ),
}  # fmt: skip
