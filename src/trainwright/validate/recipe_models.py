"""Which model of the catalog a published recipe trains, and why some recipes have none."""

import re

from trainwright.errors import BadInput

# Names as recipes write them, with `-` between words, by the catalog's name.
_MODELS = (
    (r"llama2-7b", "llama2-7b"),
    (r"llama2-13b", "llama2-13b"),
    (r"llama2-70b", "llama2-70b"),
    (r"(hf-)?llama-?3(\.1)?-8b(-\d+k|-domain-adapt)?", "llama3-8b"),
    (r"llama3(\.?1)?-70b(-\d+k)?", "llama3-70b"),
    (r"llama3\.?1-405b(-deterministic)?", "llama3-405b"),
    (r"llama32-1b", "llama3.2-1b"),
    (r"llama32-3b", "llama3.2-3b"),
    (r"llama4-(17b-16e|e16)|17bx16e", "llama4-scout"),
    (r"llama4-(17b-128e|e128)", "llama4-maverick"),
    (r"405b", "llama3-405b"),  # torchtitan names sizes; each is of one model in the table
    (r"70b", "llama3-70b"),
    (r"16b", "deepseek-v2-lite"),
    (r"0\.6b", "qwen3-0.6b"),
    (r"1\.7b", "qwen3-1.7b"),
    (r"deepseek-v3(-32nodes|-fsdp|-large-scale|-partial-cg-dev)?|deepseek3-671b(-2dfsdp)?", "deepseek-v3"),
    (r"kimi-k2", "kimi-k2"),
    (r"moonlight-16b(-8k)?", "moonlight-16b"),
    (r"glm45-355b", "glm-4.5"),
    (r"glm45-air-106b", "glm-4.5-air"),
    (r"gpt-oss-20b(-openmath.*)?", "gpt-oss-20b"),
    (r"gpt-oss-120b(-32k)?", "gpt-oss-120b"),
    (r"gpt3-175b", "gpt3-175b"),
    (r"gemma2-2b", "gemma-2-2b"),
    (r"gemma2-9b", "gemma-2-9b"),
    (r"gemma2-27b", "gemma-2-27b"),
    (r"gemma3-1b", "gemma-3-1b"),
    (r"gemma3-12b", "gemma-3-12b"),
    (r"mistral-7b", "mistral-7b"),
    (r"mixtral-8x7b", "mixtral-8x7b"),
    (r"mixtral-8x22b", "mixtral-8x22b"),
    (r"nemotron3-8b", "nemotron-3-8b"),
    (r"nemotron3-22b", "nemotron-3-22b"),
    (r"nemotron4-15b", "nemotron-4-15b"),
    (r"nemotron4-340b", "nemotron-4-340b"),
    (r"olmoe-7b", "olmoe-7b"),
    (r"qwen25?-500m", "qwen2.5-0.5b"),  # Qwen2 and Qwen2.5 have the same layers
    (r"qwen25?-1p5b", "qwen2.5-1.5b"),
    (r"qwen25?-7b", "qwen2.5-7b"),
    (r"qwen25-14b", "qwen2.5-14b"),
    (r"qwen25-32b", "qwen2.5-32b"),
    (r"qwen25?-72b", "qwen2.5-72b"),
    (r"qwen3-600m(-yarn-128k)?", "qwen3-0.6b"),
    (r"qwen3-1p7b", "qwen3-1.7b"),
    (r"qwen3-4b", "qwen3-4b"),
    (r"qwen3-8b(-32k)?", "qwen3-8b"),
    (r"qwen3-14b", "qwen3-14b"),
    (r"qwen3-32b", "qwen3-32b"),
    (r"qwen3-30b-a3b(-dev|-paged-stash-dev|-partial-cg-dev)?", "qwen3-30b-a3b"),
    (r"qwen3-235b-a22b(-large-scale|-paged-stash-dev|-partial-cg-dev)?", "qwen3-235b-a22b"),
    (r"mpt-7b", "mpt-7b"),
    (r"mpt-30b(-instruct)?", "mpt-30b"),
    (r"dbrx-full-ft", "dbrx-132b"),
    (r"t5-small-dolly-sft", "t5-small"),
)
_TOWERS = "trains a vision or audio tower with the text model; the graph has the text model alone"
_SIZES = "the sizes of the model are not stated"
_REASONS = (
    (r"(flux|wan)-.*", "a diffusion transformer; the graph has none"),
    (
        r".*-vl(-.*)?|qwen25vl-.*|vlm-.*|glm-45v|ministral3-.*|nemotron-omni-.*|qwen3-omni-.*|step37-.*",
        _TOWERS,
    ),
    (r"nemotronh-.*|nemotron-(3|nano)-.*", "has Mamba layers; the graph has none"),
    (r"qwen3-next-.*|qwen35-text-.*", "has gated delta rule layers; the graph has none"),
    (r"deepseek-v4-.*", "has hyper-connections and compressed sparse attention; the graph has neither"),
    (r"glm5.*", "selects keys by an indexer (sparse attention); the graph has none"),
    (r"exaone.*|gemma4-.*|step35-.*", "no configuration with a parameter count was at hand"),
    (r"default|vanilla-gpt|layers-.*|mpt-.*|1b-local-data-sft|7b-dolly-sft", _SIZES),
)


def catalog_model(text: str) -> str:
    """The catalog's name for a recipe's model; empty if it has none."""
    return _find(text, _MODELS)


def refusal(text: str) -> str:
    """Why a recipe's model is not in the catalog."""
    found = _find(text, _REASONS)
    if not found:
        raise BadInput("recipe model", text, "is not known", "add it to recipe_models.py")
    return found


def _find(text: str, table: tuple[tuple[str, str], ...]) -> str:
    words = re.sub(r"[ _]+", "-", text.lower())
    return next((value for pattern, value in table if re.fullmatch(pattern, words)), "")
