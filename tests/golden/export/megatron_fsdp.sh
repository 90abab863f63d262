#!/usr/bin/env bash
# dp64 mb1 zero3 hsdp8 full4 offload-optimizer fp8, a global batch of 512, 64 devices
# Run it on every node, with NODE_RANK, MASTER_ADDR and MASTER_PORT set.
set -euo pipefail
: "${NODE_RANK:=0}" "${MASTER_ADDR:=localhost}" "${MASTER_PORT:=29500}"
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True

MODEL_ARGS=(
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --kv-channels 128
    --seq-length 4096
    --vocab-size 128256
    --swiglu
    --untie-embeddings-and-output-weights
    --attention-dropout 0.0
    --hidden-dropout 0.0
    --max-position-embeddings 4096
    --position-embedding-type rope
    --normalization RMSNorm
    --disable-bias-linear
)

PLAN_ARGS=(
    --tensor-model-parallel-size 1
    --context-parallel-size 1
    --pipeline-model-parallel-size 1
    --micro-batch-size 1
    --global-batch-size 512
    --use-distributed-optimizer
    --use-megatron-fsdp
    --data-parallel-sharding-strategy optim_grads_params
    --ckpt-format fsdp_dtensor
    --no-gradient-accumulation-fusion
    --fsdp-double-buffer
    --init-model-with-meta-device
    --megatron-fsdp-main-grads-dtype fp32
    --num-distributed-optimizer-instances 8
    --optimizer-cpu-offload
    --optimizer-offload-fraction 1.0
    --use-precision-aware-optimizer
    --recompute-granularity full
    --recompute-method block
    --recompute-num-layers 4
    --bf16
    --fp8-format hybrid
    --fp8-recipe delayed
    --fp8-param-gather
    --overlap-grad-reduce
    --overlap-param-gather
    --use-mcore-models
    --transformer-impl transformer_engine
)

# Random tokens for a hundred steps, until data and a recipe are stated here.
DATA_ARGS=(
    --mock-data
    --tokenizer-type NullTokenizer
    --train-iters 100
    --lr 3e-4
)

torchrun \
    --nnodes=8 \
    --nproc-per-node=8 \
    --node-rank="${NODE_RANK}" \
    --master-addr="${MASTER_ADDR}" \
    --master-port="${MASTER_PORT}" \
    pretrain_gpt.py \
    "${MODEL_ARGS[@]}" \
    "${PLAN_ARGS[@]}" \
    "${DATA_ARGS[@]}" \
    "$@"
