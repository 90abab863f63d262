# dp16 tp8 sp pp2 mb1 zero2 1f1b full bf16, a global batch of 128, 256 devices
# zero2: weights are sharded between steps, and whole from the forward to the backward.
# Save it as a module that Python finds, say MODULE.py, and on each node:
#   PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True \
#     torchrun --nnodes=32 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=HOST:29500 \
#       -m torchtitan.train --module MODULE --config trainwright_plan

from torchtitan.distributed.activation_checkpoint import FullAC
from torchtitan.models.llama3.config_registry import llama3_70b
from torchtitan.trainer import Trainer


def trainwright_plan() -> Trainer.Config:
    """The plan, as a configuration of the trainer."""
    config = llama3_70b()
    config.parallelism.data_parallel_replicate_degree = 1
    config.parallelism.data_parallel_shard_degree = 16
    config.parallelism.fsdp_reshard_after_forward = 'never'
    config.parallelism.tensor_parallel_degree = 8
    config.parallelism.enable_sequence_parallel = True
    config.parallelism.context_parallel_degree = 1
    config.parallelism.pipeline_parallel_degree = 2
    config.parallelism.pipeline_parallel_schedule = '1F1B'
    config.parallelism.pipeline_parallel_microbatch_size = 1
    config.parallelism.module_fqns_per_model_part = [['tok_embeddings', 'layers.0', 'layers.1', 'layers.2', 'layers.3', 'layers.4', 'layers.5', 'layers.6', 'layers.7', 'layers.8', 'layers.9', 'layers.10', 'layers.11', 'layers.12', 'layers.13', 'layers.14', 'layers.15', 'layers.16', 'layers.17', 'layers.18', 'layers.19', 'layers.20', 'layers.21', 'layers.22', 'layers.23', 'layers.24', 'layers.25', 'layers.26', 'layers.27', 'layers.28', 'layers.29', 'layers.30', 'layers.31', 'layers.32', 'layers.33', 'layers.34', 'layers.35', 'layers.36', 'layers.37', 'layers.38', 'layers.39'], ['layers.40', 'layers.41', 'layers.42', 'layers.43', 'layers.44', 'layers.45', 'layers.46', 'layers.47', 'layers.48', 'layers.49', 'layers.50', 'layers.51', 'layers.52', 'layers.53', 'layers.54', 'layers.55', 'layers.56', 'layers.57', 'layers.58', 'layers.59', 'layers.60', 'layers.61', 'layers.62', 'layers.63', 'layers.64', 'layers.65', 'layers.66', 'layers.67', 'layers.68', 'layers.69', 'layers.70', 'layers.71', 'layers.72', 'layers.73', 'layers.74', 'layers.75', 'layers.76', 'layers.77', 'layers.78', 'layers.79', 'norm', 'lm_head']]
    config.parallelism.expert_parallel_degree = 1
    config.training.local_batch_size = 8
    config.training.global_batch_size = 128
    config.training.seq_len = 4096
    config.training.mixed_precision_param = 'bfloat16'
    config.activation_checkpoint = FullAC.Config()
    config.training.disable_cuda_graphs = True
    return config
