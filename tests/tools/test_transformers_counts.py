"""Parameters of configurations as `transformers` counts them on models that it builds without memory."""

import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tests.unit.model.public_configs import CONFIGS  # noqa: E402
from trainwright.model.build import build_graph  # noqa: E402
from trainwright.model.graph import parameters  # noqa: E402
from trainwright.model.huggingface import parse_config  # noqa: E402

KINDS = {
    "t5": "AutoModelForSeq2SeqLM", "mbart": "AutoModelForSeq2SeqLM", "bert": "AutoModelForPreTraining",
    "vit": "AutoModelForImageClassification", "swinv2": "AutoModelForImageClassification",
}  # fmt: skip
LATER = {"kimi_k2": "deepseek_v3"}  # what a configuration's own code builds on
UNKNOWN = {"grok-1"}  # transformers has no such model
# transformers keeps the balancing bias of each expert as a buffer, checkpoints and we as parameters.
BIASES = {"deepseek-v3": 58 * 256, "kimi-k2": 60 * 384}


@pytest.mark.parametrize("name", sorted({*CONFIGS} - UNKNOWN))
def test_parameters_are_those_that_transformers_counts(name: str) -> None:
    values = dict(CONFIGS[name])
    family = values.pop("model_type")
    family = LATER.get(family, family)
    config = transformers.AutoConfig.for_model(family, **values)
    with torch.device("meta"):
        model = getattr(transformers, KINDS.get(family, "AutoModelForCausalLM")).from_config(config)
    counted = model.num_parameters() + BIASES.get(name, 0)
    assert parameters(build_graph(parse_config(CONFIGS[name], name))) == counted


def test_at_least_25_architectures_are_compared_exactly() -> None:
    assert len({*CONFIGS} - UNKNOWN - {*BIASES}) >= 25
