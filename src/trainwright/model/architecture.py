"""The configuration of a transformer: what a model card states, checked and with defaults filled in."""

from dataclasses import dataclass, fields
from typing import Literal

from trainwright.errors import BadInput

ModelKind = Literal["decoder", "encoder", "encoder_decoder", "vision", "swin", "evoformer", "dlrm"]

_CHOICES = {
    "kind": ("decoder", "encoder", "encoder_decoder", "vision", "swin", "evoformer", "dlrm"),
    "norm": ("rms", "layer"),
    "norm_placement": ("pre", "post", "output"),
    "qk_norm": ("none", "head", "full"),
}
_POSITIVE = (
    *("layers", "hidden", "heads", "kv_heads", "head_dim", "v_head_dim", "ffn"),
    *("max_seq", "moe_every", "passes"),
)
_COUNTS = (
    *("vocab", "positions", "encoder_layers", "encoder_seq", "window", "global_every"),
    *("q_lora_rank", "kv_lora_rank", "qk_nope_dim", "qk_rope_dim"),
    *("experts", "top_k", "expert_ffn", "shared_experts", "shared_ffn", "first_dense"),
    *("position_buckets", "token_types", "patch_size", "image_size", "channels", "classes"),
    *("rows", "pair_hidden", "pair_heads", "tables", "table_rows", "pooling", "dense_features"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A transformer's sizes and options; 0 means "derive it" or "none", as the comments say.

    After construction `kv_heads`, `head_dim`, `v_head_dim`, `ffn`, `expert_ffn`, `shared_ffn`, `rope` and
    `norm_bias` hold their derived values, and `max_seq` of a Swin the patches of its image.
    """

    name: str
    left_out: str = ""  # what of the published model is not in here, in words
    kind: ModelKind = "decoder"
    layers: int  # decoder layers of an encoder-decoder
    hidden: int
    heads: int
    kv_heads: int = 0  # 0: heads
    head_dim: int = 0  # 0: hidden / heads, or qk_nope_dim + qk_rope_dim
    v_head_dim: int = 0  # 0: head_dim
    ffn: int = 0  # 0: 4 hidden; the width of dense layers
    gated: bool = False  # two up projections: SwiGLU, GeGLU
    max_seq: int = 2048  # tokens per sample that a plan assumes by default
    dropout: bool = False  # on both residual branches; its masks are saved

    vocab: int = 0
    tied: bool = False  # the head reads the embedding's weight
    positions: int = 0  # rows of the learned position table; 0: none
    rope: bool | None = None  # None: a decoder without learned positions
    embedding_norm: bool = False
    head_bias: bool = False

    norm: Literal["rms", "layer"] = "rms"
    norm_bias: bool | None = None  # None: layer norms have one
    norm_placement: Literal["pre", "post", "output"] = "pre"  # output: x + norm(f(x)), as OLMo 2
    post_norms: bool = False  # a second norm on each branch's output, as Gemma 2
    final_norm: bool = True
    parallel_block: bool = False  # attention and ffn side by side, one residual
    shared_norm: bool = False  # of a parallel block: both branches read one norm

    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False  # of experts too
    qk_norm: Literal["none", "head", "full"] = "none"  # weights per head_dim, or over all heads
    sinks: bool = False  # one learned logit per head
    window: int = 0  # sliding window in tokens; 0: none. Of a Swin the side of a window in patches
    global_every: int = 0  # every nth layer ignores the window; 0: no layer does

    q_lora_rank: int = 0  # multi-head latent attention, if kv_lora_rank is set
    kv_lora_rank: int = 0
    qk_nope_dim: int = 0
    qk_rope_dim: int = 0

    experts: int = 0
    top_k: int = 0
    expert_ffn: int = 0  # 0: ffn
    shared_experts: int = 0
    shared_ffn: int = 0  # width of all shared experts together; 0: shared_experts x expert_ffn
    shared_gate: bool = False
    first_dense: int = 0  # layers before the first expert layer
    moe_every: int = 1  # every nth layer has experts
    router_bias: bool = False

    encoder_layers: int = 0
    encoder_seq: int = 0  # tokens per sample in the encoder; 0: as in the decoder
    position_buckets: int = 0  # relative position bias, once per stack
    token_types: int = 0
    pooler: bool = False  # BERT's pooler with its two-class head
    mlm_head: bool = False  # BERT's dense layer, norm and bias before the vocabulary

    patch_size: int = 0
    image_size: int = 0
    channels: int = 3
    classes: int = 0
    depths: tuple[int, ...] = ()  # of a Swin, the layers of each stage; hidden and heads are the first's

    rows: int = 0  # of an Evoformer: sequences of the alignment
    pair_hidden: int = 0
    pair_heads: int = 0
    passes: int = 1  # forwards per step, of which the last has a backward: recycling

    tables: int = 0  # of a recommender (DLRM), whose hidden is the width of a table's rows
    table_rows: int = 0  # of each table, all alike
    pooling: int = 1  # rows of each table that a sample sums
    dense_features: int = 0  # numbers of a sample that the bottom MLP reads
    bottom: tuple[int, ...] = ()  # widths of the bottom MLP's layers; the last is hidden
    top: tuple[int, ...] = ()  # widths of the top MLP's layers; the last is 1

    def __post_init__(self) -> None:
        _check_choices(self)
        _check_flags(self)
        _check_counts(self, ("layers", "hidden", "heads"), least=1)
        _check_counts(self, ("image_size", "patch_size"), least=0)
        for field, value in _derived(self).items():
            object.__setattr__(self, field, value)
        _check_counts(self, _POSITIVE, least=1)
        _check_counts(self, _COUNTS, least=0)
        _check_parts(self)


def is_expert_layer(architecture: Architecture, index: int) -> bool:
    """Whether layer `index` (from 0) routes its tokens to experts."""
    after_dense = index >= architecture.first_dense
    return architecture.experts > 0 and after_dense and (index + 1) % architecture.moe_every == 0


def layer_window(architecture: Architecture, index: int) -> int | None:
    """The sliding window of layer `index` (from 0); None attends to everything."""
    every = architecture.global_every
    is_global = every > 0 and (index + 1) % every == 0
    return None if is_global or not architecture.window else architecture.window


def _derived(arch: Architecture) -> dict[str, object]:
    head_dim = arch.head_dim or (arch.qk_nope_dim + arch.qk_rope_dim)
    if not head_dim:
        if arch.hidden % arch.heads:
            raise _bad(arch, "hidden", f"does not divide by heads = {arch.heads}", "state head_dim")
        head_dim = arch.hidden // arch.heads
    ffn = arch.ffn or 4 * arch.hidden
    expert_ffn = (arch.expert_ffn or ffn) if arch.experts else 0
    plain_decoder = arch.kind == "decoder" and not arch.positions
    patches = (arch.image_size // (arch.patch_size or 1)) ** 2
    return {
        "max_seq": patches or 1 if arch.kind == "swin" else 1 if arch.kind == "dlrm" else arch.max_seq,
        **{name: _listed(getattr(arch, name)) for name in ("depths", "bottom", "top")},
        "kv_heads": arch.kv_heads or arch.heads,
        "head_dim": head_dim,
        "v_head_dim": arch.v_head_dim or head_dim,
        "ffn": ffn,
        "expert_ffn": expert_ffn,
        "shared_ffn": arch.shared_ffn or arch.shared_experts * expert_ffn,
        "rope": plain_decoder if arch.rope is None else arch.rope,
        "norm_bias": arch.norm == "layer" if arch.norm_bias is None else arch.norm_bias,
    }


def _listed(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _check_choices(arch: Architecture) -> None:
    for field, choices in _CHOICES.items():
        if getattr(arch, field) not in choices:
            raise _bad(arch, field, "no such choice", "use one of " + ", ".join(choices))


def _check_flags(arch: Architecture) -> None:
    for field in fields(arch):
        value, is_flag = getattr(arch, field.name), field.type in (bool, bool | None)
        unset = value is None and field.type is not bool
        if is_flag and not unset and not isinstance(value, bool):
            raise _bad(arch, field.name, "must be true or false", "correct it")


def _check_counts(arch: Architecture, fields: tuple[str, ...], least: int) -> None:
    for field in fields:
        value = getattr(arch, field)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise _bad(arch, field, f"must be a whole number of at least {least}", "correct it")


def _check_parts(arch: Architecture) -> None:
    if arch.heads % arch.kv_heads:
        raise _bad(arch, "heads", f"does not divide by kv_heads = {arch.kv_heads}", "correct one of them")
    if arch.kind in ("decoder", "encoder", "encoder_decoder") and not arch.vocab:
        raise _bad(arch, "vocab", "a text model needs one", "state vocab")
    if arch.kind == "encoder_decoder" and not arch.encoder_layers:
        raise _bad(arch, "encoder_layers", "an encoder-decoder needs an encoder", "state encoder_layers")
    if arch.experts and not 1 <= arch.top_k <= arch.experts:
        raise _bad(arch, "top_k", f"must be 1 to experts = {arch.experts}", "correct one of them")
    if not arch.experts and (arch.top_k or arch.shared_ffn):
        raise _bad(arch, "experts", "top_k or shared experts without experts", "state experts")
    _check_latent(arch)
    if arch.kind in ("vision", "swin"):
        _check_image(arch)
    if arch.kind == "swin":
        _check_stages(arch)
    if arch.kind == "evoformer":
        _check_pairs(arch)
    if arch.kind == "dlrm":
        _check_tables(arch)


def _check_latent(arch: Architecture) -> None:
    if not arch.kv_lora_rank:
        return
    if not (arch.qk_nope_dim and arch.qk_rope_dim):
        rule = "latent attention needs both parts of a head"
        raise _bad(arch, "kv_lora_rank", rule, "state qk_nope_dim and qk_rope_dim")
    if arch.head_dim != arch.qk_nope_dim + arch.qk_rope_dim:
        raise _bad(arch, "head_dim", "is not qk_nope_dim + qk_rope_dim", "leave head_dim out")


def _check_image(arch: Architecture) -> None:
    for field in ("image_size", "patch_size", "classes"):
        if not getattr(arch, field):
            raise _bad(arch, field, "a vision model needs one", f"state {field}")
    if arch.image_size % arch.patch_size:
        raise _bad(arch, "image_size", f"is not whole patches of {arch.patch_size}", "correct one of them")


def _check_stages(arch: Architecture) -> None:
    """Every stage has layers, and windows tile the image of every stage that is larger than one."""
    if (
        not isinstance(arch.depths, tuple)
        or not arch.depths
        or any(not isinstance(each, int) or each < 1 for each in arch.depths)
    ):
        raise _bad(arch, "depths", "must be the layers of each stage", "write them like [2, 2, 18, 2]")
    if sum(arch.depths) != arch.layers:
        raise _bad(arch, "depths", f"do not add up to layers = {arch.layers}", "correct one of them")
    if not arch.window:
        raise _bad(arch, "window", "a Swin needs one", "state the side of a window in patches")
    side = arch.image_size // arch.patch_size
    for stage in range(len(arch.depths)):
        if side % 2**stage or (side >> stage) % min(arch.window, side >> stage):
            rule = f"does not tile stage {stage + 1} of {side} / {2**stage} patches a side"
            raise _bad(arch, "window", rule, "correct window or image_size")


def _check_pairs(arch: Architecture) -> None:
    for field in ("rows", "pair_hidden", "pair_heads"):
        if not getattr(arch, field):
            raise _bad(arch, field, "an Evoformer needs one", f"state {field}")
    if arch.pair_hidden % arch.pair_heads:
        rule = f"does not divide by pair_heads = {arch.pair_heads}"
        raise _bad(arch, "pair_hidden", rule, "correct one of them")


def _check_tables(arch: Architecture) -> None:
    for field in ("tables", "table_rows", "pooling", "dense_features"):
        if not getattr(arch, field):
            raise _bad(arch, field, "a recommender needs one", f"state {field}")
    for field, last in (("bottom", arch.hidden), ("top", 1)):
        widths = getattr(arch, field)
        whole = isinstance(widths, tuple) and all(type(each) is int and each > 0 for each in widths)
        if not whole or not widths or widths[-1] != last:
            rule = f"must be the widths of its layers, the last of them {last}"
            raise _bad(arch, field, rule, f"write them like [512, 256, {last}]")
    if len(arch.bottom) + len(arch.top) != arch.layers:
        rule = f"bottom and top have {len(arch.bottom)} + {len(arch.top)}"
        raise _bad(arch, "layers", rule, "correct one of them")


def _bad(arch: Architecture, field: str, rule: str, remedy: str) -> BadInput:
    return BadInput(f'model "{arch.name}": {field}', getattr(arch, field), rule, remedy)
