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
LAYOUT = """#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
torchrun --nproc-per-node 2 pretrain_gpt.py --num-layers 5 --hidden-size 256 --num-attention-heads 4 \\
    --seq-length 512 --vocab-size 1024 --max-position-embeddings 512 --pipeline-model-parallel-size 2 \\
    --pipeline-model-parallel-layout 'Et*2|(t|)*2,tL' --micro-batch-size 1 --global-batch-size 4 --bf16
"""
NANOTRON = """general:
  project: mine
  seed: 42
parallelism:
  dp: 1
  tp: 2
  pp: 1
  pp_engine: 1f1b
  tp_mode: REDUCE_SCATTER
tokens:
  sequence_length: 512
  micro_batch_size: 2
  batch_accumulation_per_replica: 4
model:
  dtype: bfloat16
  model_config:
    is_llama_config: true
    num_hidden_layers: 4
    hidden_size: 256
    intermediate_size: 512
    num_attention_heads: 4
    vocab_size: 1024
optimizer:
  zero_stage: 0
  accumulate_grad_in_fp32: true
  optimizer_factory: {name: adamW, adam_beta1: 0.9}
"""
MAXTEXT = """base_config: base.yml
run_name: mine
base_emb_dim: 256
base_num_query_heads: 4
base_num_kv_heads: 4
base_mlp_dim: 512
base_num_decoder_layers: 4
head_dim: 64
vocab_size: 1024
per_device_batch_size: 2
max_target_length: 512
ici_fsdp_parallelism: -1
ici_tensor_parallelism: 1
remat_policy: minimal
attention: flash
"""
ACCELERATE = """# accelerate launch train.py --per_device_train_batch_size 2 --gradient_accumulation_steps 4
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: bf16
num_machines: 1
num_processes: 2
fsdp_config:
  fsdp_version: 2
  fsdp_reshard_after_forward: true
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_activation_checkpointing: false
"""
BRIDGE = """from megatron.bridge.recipes.llama import llama3_8b_pretrain_config


def mine():
    cfg = llama3_8b_pretrain_config(tensor_model_parallel_size=2, pipeline_model_parallel_size=1)
    cfg.train.micro_batch_size = 1
    cfg.train.global_batch_size = 4
    cfg.model.seq_length = 512
    cfg.model.sequence_parallel = True
    cfg.ddp.use_distributed_optimizer = True
    if cfg.comm_overlap is not None:
        cfg.comm_overlap.overlap_grad_reduce = True
    cfg.mixed_precision = "bf16_mixed"
    return cfg
"""
