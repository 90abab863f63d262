# dp8 tp4 sp pp2 mb2 zero1 1f1b full bf16, a global batch of 128, 64 devices
# The model is the recipe's: cfg = RECIPE(); apply_plan(cfg).
# For 64 devices, dp 8: torchrun --nnodes=8 --nproc-per-node=8, which set dp.


def apply_plan(cfg):
    """Set what the plan says on a recipe's ConfigContainer."""
    cfg.model.tensor_model_parallel_size = 4
    cfg.model.sequence_parallel = True
    cfg.model.context_parallel_size = 1
    cfg.model.pipeline_model_parallel_size = 2
    cfg.model.pipeline_model_parallel_layout = None
    cfg.model.virtual_pipeline_model_parallel_size = None
    cfg.model.account_for_embedding_in_pipeline_split = False
    cfg.model.account_for_loss_in_pipeline_split = False
    cfg.model.expert_model_parallel_size = 1
    cfg.model.expert_tensor_parallel_size = 1
    cfg.model.seq_length = 4096
    cfg.model.overlap_p2p_comm = False
    cfg.model.batch_p2p_comm = True
    cfg.model.recompute_granularity = 'full'
    cfg.model.recompute_modules = None
    cfg.model.recompute_method = 'uniform'
    cfg.model.recompute_num_layers = 1
    cfg.model.cpu_offloading = False
    cfg.ddp.use_distributed_optimizer = True
    cfg.ddp.overlap_grad_reduce = True
    cfg.ddp.overlap_param_gather = True
    cfg.ddp.num_distributed_optimizer_instances = 1
    cfg.ddp.use_megatron_fsdp = False
    cfg.ddp.data_parallel_sharding_strategy = 'no_shard'
    cfg.ddp.fsdp_double_buffer = False
    cfg.optimizer.use_distributed_optimizer = True
    cfg.optimizer.optimizer_cpu_offload = False
    cfg.dist.use_tp_pp_dp_mapping = False
    cfg.dist.use_megatron_fsdp = False
    cfg.train.micro_batch_size = 2
    cfg.train.global_batch_size = 128
    cfg.dataset.seq_length = 4096
    cfg.mixed_precision = 'bf16_mixed'
    if hasattr(cfg, "env_vars"):  # else export them before the launch
        cfg.env_vars['PYTORCH_CUDA_ALLOC_CONF'] = 'expandable_segments:True'
        cfg.env_vars['CUDA_DEVICE_MAX_CONNECTIONS'] = '1'
    if cfg.comm_overlap is not None:  # which has the last word on overlap
        cfg.comm_overlap.overlap_grad_reduce = True
        cfg.comm_overlap.overlap_param_gather = True
        cfg.comm_overlap.overlap_p2p_comm = False
        cfg.comm_overlap.batch_p2p_comm = True
    return cfg
