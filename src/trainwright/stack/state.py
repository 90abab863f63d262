"""How a stack holds weights and gradients beyond one copy of each: units that are gathered, buffers, ends."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLayout:
    """What sharded data parallelism holds unsharded at the peak, and what buffers it keeps.

    A unit is what is gathered at once: one layer. The defaults are those of PyTorch's FSDP2 (torch 2.13,
    torch/distributed/fsdp/_fully_shard): the unit in work and the one that is prefetched, and of the unit in
    backward its gradients in the weights' 16 bits and the fp32 input of their reduce-scatter.
    """

    gathered_units: float = 2.0  # of weights, with ZeRO-3
    unit_gradient_bytes: float = 6.0  # per parameter of one unit, with ZeRO-2 and 3
    whole_ends: bool = False  # embedding and head are gathered once and kept, with ZeRO-3
    whole_gradients: bool = False  # gradients stay unsharded until the last microbatch
    whole_with_pipeline: bool = False  # with pp, ZeRO-2 and 3 keep weights and gradients whole
    bucket_bytes: float = 0.0  # buffers of reductions and gathers, with ZeRO-1 and above
