# dp16 tp8 sp pp2 mb1 zero2 1f1b full bf16, a global batch of 128, 256 devices
# zero2: weights are sharded between steps, and whole from the forward to the backward.
# Save it as a module that Python finds, say MODULE.py, and on each node:
#   torchrun --nnodes=32 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=HOST:29500 \
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
    config.parallelism.pipeline_parallel_first_stage_less_layers = 0
    config.parallelism.pipeline_parallel_last_stage_less_layers = 0
    config.parallelism.expert_parallel_degree = 1
    config.training.local_batch_size = 8
    config.training.global_batch_size = 128
    config.training.seq_len = 4096
    config.training.mixed_precision_param = 'bfloat16'
    config.activation_checkpoint = FullAC.Config()
    config.training.disable_cuda_graphs = True
    return config
