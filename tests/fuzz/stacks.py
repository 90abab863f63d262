"""Valid configurations of other tools, in the styles in which people write them; the text is our own."""

FLAGS = """torchrun --nproc_per_node 2 --nnodes 1 pretrain_gpt.py \\
    --num-layers 4 --hidden-size 256 --num-attention-heads 4 --seq-length 512 --vocab-size 1024 \\
    --max-position-embeddings 512 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 1 \\
    --sequence-parallel --use-distributed-optimizer --micro-batch-size 2 --global-batch-size 8 --bf16 \\
    --recompute-activations --lr 3e-4
"""
ARRAYS = """#!/bin/bash
GPUS_PER_NODE=2
NUM_NODES=${NUM_NODES:-1}
TP=1
MODEL_ARGS=(
    --num-layers 4
    --hidden-size 256
    --num-attention-heads 4
    --group-query-attention
    --num-query-groups 2
    --swiglu
    --ffn-hidden-size 512
    --normalization RMSNorm
    --position-embedding-type rope
    --seq-length 512
    --vocab-size 2048
    --num-experts 4
    --moe-router-topk 2
)
PARALLEL_ARGS=(
    --tensor-model-parallel-size $TP
    --pipeline-model-parallel-size 2
    --expert-model-parallel-size 1
    --micro-batch-size 1
    --global-batch-size 8
    --bf16
)
torchrun --nproc-per-node $GPUS_PER_NODE --nnodes $NUM_NODES pretrain_gpt.py \\
    ${MODEL_ARGS[@]} ${PARALLEL_ARGS[@]}
"""
QUOTED = """DISTRIBUTED="--nproc_per_node 2 --nnodes 1"
GPT_ARGS=" --num-layers 4 --hidden-size 256 --num-attention-heads 4 --seq-length 512 --vocab-size 1024 \\
  --max-position-embeddings 512 --micro-batch-size 1 --global-batch-size 4 --fp16"
python -m torch.distributed.launch $DISTRIBUTED pretrain_gpt.py $GPT_ARGS --tensor-model-parallel-size 1
"""
DEEPSPEED = """{
 "train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2,
 "bf16": {"enabled": true}, "gradient_clipping": 1.0,
 "zero_optimization": {"stage": 2, "overlap_comm": true, "offload_optimizer": {"device": "none"}},
 "optimizer": {"type": "AdamW", "params": {"lr": 0.0003}}, "steps_per_print": 10
}
"""
TITAN = """[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 1
global_batch_size = 8
seq_len = 2048
[parallelism]
data_parallel_shard_degree = -1
data_parallel_replicate_degree = 1
tensor_parallel_degree = 2
pipeline_parallel_degree = 1
[activation_checkpoint]
mode = "full"
"""
REGISTRY = """from torchtitan.trainer import Trainer


def small() -> Trainer.Config:
    return Trainer.Config(
        training=TrainingConfig(local_batch_size=2, seq_len=1024),
        parallelism=ParallelismConfig(tensor_parallel_degree=2, data_parallel_shard_degree=1),
        activation_checkpoint=FullAC.Config(),
    )
"""
