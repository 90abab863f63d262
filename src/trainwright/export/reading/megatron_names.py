"""The flags of Megatron-LM that are read for a prediction, and those that do not change it."""

from collections.abc import Iterator

from trainwright.export.reading.words import Flags

_READ = {
    "add-qkv-bias", "bf16", "context-parallel-size", "cp-comm-type", "data-parallel-sharding-strategy",
    "disable-bias-linear", "expert-model-parallel-size", "expert-tensor-parallel-size",
    "ffn-hidden-size", "fp16", "fp4-format", "fp8-format", "global-batch-size", "group-query-attention",
    "hidden-dropout", "hidden-size", "kv-channels", "kv-lora-rank", "max-position-embeddings",
    "micro-batch-size", "moe-ffn-hidden-size", "moe-layer-freq", "moe-router-topk",
    "moe-shared-expert-gate", "moe-shared-expert-intermediate-size", "multi-latent-attention", "nnodes",
    "normalization", "nproc-per-node", "num-attention-heads", "num-distributed-optimizer-instances",
    "num-experts", "num-layers", "num-layers-per-virtual-pipeline-stage", "num-query-groups",
    "num-virtual-stages-per-pipeline-rank", "optimizer-cpu-offload", "overlap-grad-reduce",
    "pipeline-model-parallel-size", "position-embedding-type", "q-lora-rank", "qk-head-dim",
    "qk-layernorm", "qk-pos-emb-head-dim", "recompute-activations", "recompute-granularity",
    "recompute-method", "recompute-num-layers", "seq-length", "sequence-parallel", "softmax-type",
    "swiglu", "tensor-model-parallel-size", "torch-fsdp2-no-reshard-after-forward",
    "untie-embeddings-and-output-weights", "use-custom-fsdp", "use-distributed-optimizer",
    "use-megatron-fsdp", "use-rotary-position-embeddings", "use-torch-fsdp2", "use-tp-pp-dp-mapping",
    "v-head-dim", "vocab-size", "window-attn-skip-freq", "window-size",
}  # fmt: skip
# Data, schedules of learning, checkpoints, logs; and what every plan that is predicted is taken to have.
_WITHOUT_EFFECT = {
    "overlap-param-gather", "no-overlap-p2p-communication", "use-mcore-models", "transformer-impl",
    "attention-dropout", "optimizer-offload-fraction", "use-precision-aware-optimizer", "ckpt-format",
    "no-gradient-accumulation-fusion", "moe-token-dispatcher-type", "moe-grouped-gemm",
    "recompute-modules", "use-flash-attn", "mock-data", "seed", "lr-decay-style", "distributed-backend",
    "split", "vocab-file", "merge-file", "clip-grad", "weight-decay", "norm-epsilon", "rotary-base",
    "rotary-percent", "node-rank", "master-addr", "master-port", "module", "config", "bf16",
    "train-iters", "train-samples", "exit-interval", "exit-duration-in-mins", "manual-gc",
    "manual-gc-interval", "distributed-timeout-minutes", "make-vocab-size-divisible-by",
    "override-opt-param-scheduler", "moe-router-load-balancing-type", "moe-aux-loss-coeff",
    "moe-z-loss-coeff", "standalone", "use-dist-ckpt",
}  # fmt: skip
_OF_OTHER_THINGS = (
    "lr", "min-lr", "adam-", "init-method", "data-", "tokenizer-", "save", "load", "log-", "eval-",
    "tensorboard-", "wandb-", "timing-", "rdzv-", "rampup-", "dist-ckpt", "async-", "finetune",
    "num-workers", "no-load-", "no-save-",
)  # fmt: skip


def unread(flags: Flags) -> Iterator[str]:
    """What to say of flags that may change a step and are not considered."""
    known = _READ | _WITHOUT_EFFECT
    others = [name for name in flags.values if name not in known and not name.startswith(_OF_OTHER_THINGS)]
    if others:
        yield f"Not considered: {', '.join(f'--{name}' for name in others)}."
