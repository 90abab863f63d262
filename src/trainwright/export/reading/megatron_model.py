"""A model from Megatron-LM's flags."""

import ast

from trainwright.errors import BadInput, UnknownName
from trainwright.export.reading.launch_flags import Flags
from trainwright.export.reading.python_text import parse_expression
from trainwright.model.architecture import Architecture

_WIDTH = 8 / 3  # of a gated ffn whose width is not stated, in hidden sizes: Megatron-LM's own rule


def read_model(flags: Flags, vocab: int) -> Architecture:
    """The decoder that the flags describe."""
    hidden, heads = flags.whole("hidden-size"), flags.whole("num-attention-heads")
    grouped = flags.has("group-query-attention")
    qkv, others = _biases(flags)
    gated = flags.has("swiglu") or flags.has("quick-geglu")
    values: dict[str, object] = {
        "name": "configured", "layers": flags.whole("num-layers"), "hidden": hidden, "heads": heads,
        "kv_heads": flags.whole("num-query-groups", 1) if grouped else heads,
        "head_dim": 0 if flags.has("multi-latent-attention") else flags.whole("kv-channels", 0),
        "ffn": flags.whole("ffn-hidden-size", 0) or _width(hidden, gated=flags.has("swiglu")),
        "gated": gated,
        "max_seq": flags.whole("seq-length", 2048), "vocab": vocab,
        "tied": not flags.has("untie-embeddings-and-output-weights"),
        "dropout": _rate(flags, "hidden-dropout") > 0,
        "norm": "rms" if flags.word("normalization", "LayerNorm") == "RMSNorm" else "layer",
        "qkv_bias": qkv, "output_bias": others, "mlp_bias": others,
        "qk_norm": "head" if flags.has("qk-layernorm") else "none",
        "sinks": flags.word("softmax-type", "vanilla") == "learnable",
    }  # fmt: skip
    parts = _position(flags) | _window(flags) | _latent(flags) | _experts(flags)
    return Architecture(**(values | parts))  # type: ignore[arg-type]


def _width(hidden: int, *, gated: bool) -> int:
    """Megatron-LM's own rule: 4 hidden, or with a gate as many weights in multiples of 64."""
    return int(hidden * _WIDTH / 64) * 64 if gated else 4 * hidden


def _rate(flags: Flags, name: str) -> float:
    text = flags.word(name, "0.1")
    try:
        return float(text)
    except ValueError:
        raise BadInput(f"{flags.source}: --{name}", text, "must be a number", "correct it") from None


def _biases(flags: Flags) -> tuple[bool, bool]:
    """Whether qkv has a bias, and whether the other matrix products have."""
    plain = not flags.has("disable-bias-linear")
    return plain or flags.has("add-qkv-bias"), plain


_POSITIONS = ("learned_absolute", "rope", "yarn", "mrope", "none")


def _position(flags: Flags) -> dict[str, object]:
    kind = flags.word("position-embedding-type", "learned_absolute")
    if flags.has("no-position-embedding"):
        kind = "none"
    if kind not in _POSITIONS:
        raise UnknownName(f"{flags.source}: --position-embedding-type", kind, _POSITIONS)
    learned = kind == "learned_absolute" and not flags.has("use-rotary-position-embeddings")
    positions = flags.whole("max-position-embeddings", flags.whole("seq-length", 2048)) if learned else 0
    return {"positions": positions, "rope": not learned and kind != "none"}


def _window(flags: Flags) -> dict[str, object]:
    if not flags.has("window-size"):
        return {}
    text = flags.word("window-size", "").strip("()").split(",")[0]
    if not text.isdigit():
        raise BadInput(f"{flags.source}: --window-size", text, "must be like 4095,0", "correct it")
    return {"window": int(text) + 1, "global_every": flags.whole("window-attn-skip-freq", 0)}


def _latent(flags: Flags) -> dict[str, object]:
    if not flags.has("multi-latent-attention"):
        return {}
    return {
        "q_lora_rank": flags.whole("q-lora-rank", 0), "kv_lora_rank": flags.whole("kv-lora-rank", 32),
        "qk_nope_dim": flags.whole("qk-head-dim", 128), "qk_rope_dim": flags.whole("qk-pos-emb-head-dim", 64),
        "v_head_dim": flags.whole("v-head-dim", 128),
    }  # fmt: skip


def _experts(flags: Flags) -> dict[str, object]:
    if not flags.has("num-experts"):
        return {}
    if len(flags.values["num-experts"]) > 1:
        rule = "differs by layer, which is not read"
        raise BadInput(f"{flags.source}: --num-experts", "", rule, "state --model")
    expert = flags.whole("moe-ffn-hidden-size", flags.whole("ffn-hidden-size", 0))
    shared = flags.whole("moe-shared-expert-intermediate-size", 0)
    return {
        "experts": flags.whole("num-experts"), "top_k": flags.whole("moe-router-topk", 2),
        "expert_ffn": expert, "shared_ffn": shared,
        "shared_experts": shared // expert if expert and shared % expert == 0 else int(shared > 0),
        "shared_gate": flags.has("moe-shared-expert-gate"),
        "router_bias": flags.has("moe-router-enable-expert-bias"), **_frequency(flags),
    }  # fmt: skip


def _frequency(flags: Flags) -> dict[str, object]:
    """Which layers have experts: the first ones may be dense, and of the rest every nth has."""
    text = flags.word("moe-layer-freq", "1").replace(" ", "")
    if text.isdigit():
        return {"moe_every": max(int(text), 1)}
    pattern = _pattern(text, f"{flags.source}: --moe-layer-freq")
    found = [index for index, each in enumerate(pattern) if each]
    every = found[1] - found[0] if len(found) > 1 else 1
    dense = found[0] if every == 1 else 0
    wanted = [int(index >= dense and (index + 1) % every == 0) for index in range(len(pattern))]
    if wanted != pattern:
        rule = "is neither dense layers first nor every nth layer"
        raise BadInput(f"{flags.source}: --moe-layer-freq", text, rule, "simplify it")
    return {"moe_every": every, "first_dense": dense}


def _pattern(text: str, thing: str) -> list[int]:
    """The ones and zeros of a list such as `([0]*3+[1]*58)`."""
    try:
        found = _evaluate(parse_expression(text))
    except (SyntaxError, ValueError, RecursionError):
        found = 0
    if not isinstance(found, list) or not any(found) or not {*found} <= {0, 1}:
        raise BadInput(thing, text, "is no list of ones and zeros", "write it like ([0]*3+[1]*58)")
    return found


def _evaluate(node: ast.expr) -> list[int] | int:
    match node:
        case ast.Constant(value=int(number)) if 0 <= number <= 10_000:
            return number
        case ast.List(elts=parts):
            return [part for each in parts if isinstance(part := _evaluate(each), int)]
        case ast.BinOp(left=left, op=ast.Add() | ast.Mult() as operator, right=right):
            first, second = _evaluate(left), _evaluate(right)
            if isinstance(operator, ast.Mult) and isinstance(first, list) and isinstance(second, int):
                return first * min(second, 10_000)
            if isinstance(operator, ast.Add) and isinstance(first, list) and isinstance(second, list):
                return first + second
    raise ValueError
