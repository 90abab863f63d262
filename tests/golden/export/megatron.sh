#!/usr/bin/env bash
# dp8 tp2 sp cp2 allgather pp4 vpp2 ep4 mb1 zero1 interleaved recompute=mlp_norm+moe_act bf16, a global batch of 64, 128 devices
# Run it on every node, with NODE_RANK, MASTER_ADDR and MASTER_PORT set.
set -euo pipefail
: "${NODE_RANK:=0}" "${MASTER_ADDR:=localhost}" "${MASTER_PORT:=29500}"
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
export CUDA_DEVICE_MAX_CONNECTIONS=1

MODEL_ARGS=(
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --kv-channels 128
    --seq-length 4096
    --vocab-size 32000
    --swiglu
    --untie-embeddings-and-output-weights
    --attention-dropout 0.0
    --hidden-dropout 0.0
    --max-position-embeddings 4096
    --position-embedding-type rope
    --normalization RMSNorm
    --disable-bias-linear
    --num-experts 8
    --moe-router-topk 2
    --moe-ffn-hidden-size 14336
    --moe-token-dispatcher-type alltoall
    --moe-grouped-gemm
)

PLAN_ARGS=(
    --tensor-model-parallel-size 2
    --sequence-parallel
    --context-parallel-size 2
    --cp-comm-type all_gather
    --pipeline-model-parallel-size 4
    --expert-model-parallel-size 4
    --expert-tensor-parallel-size 1
    --num-virtual-stages-per-pipeline-rank 2
    --micro-batch-size 1
    --global-batch-size 64
    --use-distributed-optimizer
    --recompute-granularity selective
    --recompute-modules layernorm moe_act
    --bf16
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
    --nnodes=16 \
    --nproc-per-node=8 \
    --node-rank="${NODE_RANK}" \
    --master-addr="${MASTER_ADDR}" \
    --master-port="${MASTER_PORT}" \
    pretrain_gpt.py \
    "${MODEL_ARGS[@]}" \
    "${PLAN_ARGS[@]}" \
    "${DATA_ARGS[@]}" \
    "$@"
