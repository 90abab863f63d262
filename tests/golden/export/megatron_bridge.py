# dp8 tp4 sp pp2 mb2 zero1 1f1b full bf16, a global batch of 128, 64 devices
# The model is the recipe's: cfg = RECIPE(); apply_plan(cfg).
# For 64 devices, dp 8: torchrun --nnodes=8 --nproc-per-node=8, which set dp.


def apply_plan(cfg):
    """Set what the plan says on a recipe's ConfigContainer."""
    cfg.model.tensor_model_parallel_size = 4
    cfg.model.sequence_parallel = True
    cfg.model.context_parallel_size = 1
    cfg.model.pipeline_model_parallel_size = 2
    cfg.model.virtual_pipeline_model_parallel_size = None
    cfg.model.expert_model_parallel_size = 1
    cfg.model.expert_tensor_parallel_size = 1
    cfg.model.seq_length = 4096
    cfg.model.recompute_granularity = 'full'
    cfg.model.recompute_method = 'uniform'
    cfg.model.recompute_num_layers = 1
    cfg.ddp.use_distributed_optimizer = True
    cfg.ddp.overlap_grad_reduce = True
    cfg.ddp.overlap_param_gather = True
    cfg.train.micro_batch_size = 2
    cfg.train.global_batch_size = 128
    cfg.mixed_precision = 'bf16_mixed'
    return cfg
