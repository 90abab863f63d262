"""What stands before and after the layers: embeddings, heads, the loss."""

from dataclasses import replace

from trainwright.model.architecture import Architecture
from trainwright.model.graph import Block, Op, Tensor
from trainwright.model.operators import TOKENS, hidden_state, matmul, norm, residual, tensor


def embedding_block(architecture: Architecture, stack: str = "") -> Block:
    """Token, position and token-type tables; `stack` is "encoder." or "decoder." where a model has both."""
    tokens = tensor("tokens", *TOKENS, element="index")
    tables = [tensor("embedding.weight", "vocab", "hidden")]
    if architecture.positions:
        tables.append(tensor(f"{stack}positions.weight", "positions", "hidden"))
    if architecture.token_types:
        tables.append(tensor("token_types.weight", "token_types", "hidden"))
    embedding = Op(
        name="embedding",
        kind="gather",
        region="vocab",
        inputs=(tokens,),
        output=hidden_state("embedding.out"),
        weights=tuple(tables),
        saved=(tokens,),
    )
    ops = (embedding, *_after_embedding(architecture, embedding.output))
    states = [op.output.name for op in ops if op.output.dims == embedding.output.dims]
    goes_on = () if ops[-1].output.name == states[-1] else (("stream", states[-1]),)
    return Block(name=f"{stack}embedding", ops=ops, outputs=goes_on)


def patch_block(architecture: Architecture) -> Block:
    """A linear map of each image patch, with a class token and learned positions."""
    pixels = tensor("pixels", *TOKENS, "patch")
    patches = matmul("patches", "sequence", pixels, hidden_state("patches.out"), ("patch", "hidden"), True)
    extra = [tensor("class_token.weight", "hidden")]
    if architecture.positions:
        extra.append(tensor("positions.weight", "positions", "hidden"))
    patches = replace(patches, weights=(*patches.weights, *extra))
    return Block(name="embedding", ops=(patches, *_after_embedding(architecture, patches.output)))


def encoder_end_block(architecture: Architecture) -> Block:
    """The encoder's last norm; its output is kept for the cross attention of every decoder layer."""
    final = norm(architecture, "encoder.final_norm", hidden_state("stream"))
    return Block(name="encoder.end", ops=(replace(final, saved=(*final.saved, final.output)),))


def head_block(architecture: Architecture) -> Block:
    """Final norm, the projection to the vocabulary, the loss."""
    source = hidden_state("stream")
    ops: list[Op] = list(_pooler_ops()) if architecture.pooler else []
    if architecture.final_norm:
        ops.append(norm(architecture, "final_norm", source))
        source = ops[-1].output
    if architecture.mlm_head:
        ops += _mlm_ops(architecture, source)
        source = ops[-1].output
    logits = tensor("logits.out", *TOKENS, "vocab")
    name = "embedding" if architecture.tied else "logits"
    head = matmul("logits", "vocab", source, logits, ("vocab", "hidden"), architecture.head_bias)
    head = replace(head, weights=(tensor(f"{name}.weight", "vocab", "hidden"), *head.weights[1:]))
    return Block(name="head", ops=(*ops, head, loss_op(logits)))


def class_head_block(architecture: Architecture) -> Block:
    """Final norm, the classes of the class token, the loss."""
    final = norm(architecture, "final_norm", hidden_state("stream"))
    pooled = tensor("class_state", "batch", "hidden")
    logits = tensor("logits.out", "batch", "classes")
    head = matmul("logits", "vocab", pooled, logits, ("hidden", "classes"), architecture.head_bias)
    return Block(name="head", ops=(final, head, loss_op(logits)))


def loss_op(logits: Tensor, name: str = "loss") -> Op:
    """Cross entropy: its backward reads the softmax, which is kept in fp32."""
    return Op(
        name=name,
        kind="loss",
        region="vocab",
        inputs=(logits,),
        output=tensor(f"{name}.out", *logits.dims[:-1], element="fp32"),
        contracted=(logits.dims[-1],),
        saved=(tensor(f"{name}.softmax", *logits.dims, element="fp32"),),
    )


def _after_embedding(arch: Architecture, embedded: Tensor) -> tuple[Op, ...]:
    ops: list[Op] = []
    if arch.embedding_norm:
        ops.append(norm(arch, "embedding_norm", embedded))
    if arch.position_buckets:
        ops.append(_position_bias())
    if arch.dropout:
        source = ops[0].output if arch.embedding_norm else embedded
        dropout = residual(arch, "embedding_dropout", source, source)
        ops.append(replace(dropout, inputs=(source,)))
    return tuple(ops)


def _position_bias() -> Op:
    """Relative position bias of a whole stack: a few buckets per head, spread over query and key (T5)."""
    return Op(
        name="position_bias",
        kind="gather",
        region="attention",
        inputs=(),
        output=tensor("position_bias.out", "heads", "seq", "seq_kv"),
        weights=(tensor("position_bias.weight", "position_buckets", "heads"),),
    )


def _pooler_ops() -> tuple[Op, ...]:
    first = tensor("class_state", "batch", "hidden")
    pooled = tensor("pooler.out", "batch", "hidden_out")
    pooler = matmul("pooler", "sequence", first, pooled, ("hidden", "hidden_out"), True)
    pair = tensor("pair.out", "batch", "pair")
    return (pooler, matmul("pair", "sequence", pooled, pair, ("hidden_out", "pair"), True))


def _mlm_ops(arch: Architecture, stream: Tensor) -> tuple[Op, ...]:
    wide = tensor("mlm.transform.out", *TOKENS, "hidden_out")
    transform = matmul("mlm.transform", "sequence", stream, wide, ("hidden", "hidden_out"), True)
    activation = Op(
        name="mlm.activation",
        kind="elementwise",
        region="sequence",
        inputs=(wide,),
        output=hidden_state("mlm.activation.out"),
        saved=(wide,),
    )
    return (transform, activation, norm(arch, "mlm.norm", activation.output))
