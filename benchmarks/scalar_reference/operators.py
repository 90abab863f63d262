"""The time of one operator on one device."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil, inf, prod

from trainwright.cluster.types import DTYPE_BYTES
from trainwright.cost.gemm import TILES
from trainwright.estimate.types import Job
from trainwright.model.graph import ELEMENT_BYTES, Op, Tensor, query_dim, query_groups

Sizes = Mapping[str, float]  # of every dim, as one device holds it

KERNELS = {"gather": 2, "loss": 6, "permute": 6}  # that an operator launches; one, unless stated
ROUTER_KERNELS = 8  # more, for the operator that chooses experts
UNFUSED_ATTENTION_KERNELS = 6
PREPROCESSED = 0.5  # of a permutation's launches, those before tokens move


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTime:
    """Seconds of one operator: forward, gradients of inputs, gradients of weights; kernels it launches."""

    forward_s: float
    dgrad_s: float
    wgrad_s: float = 0.0
    kernels: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """A job's device at one precision."""

    job: Job
    precision: str

    @property
    def wide(self) -> str:
        """The dtype of activations and of what 8- and 4-bit recipes leave in 16 bit."""
        return "bf16" if self.precision in ("fp8", "fp4") else self.precision

    @property
    def element_bytes(self) -> float:
        """Of one element of an activation."""
        return DTYPE_BYTES[self.wide]

    @property
    def memory_bytes_per_s(self) -> float:
        """Achieved."""
        return self.job.cluster.device.memory[0].bytes_per_s * self.job.efficiency.memory

    def op_time(self, op: Op, sizes: Sizes) -> OpTime:
        """Of one operator whose dims have these sizes."""
        time = self._device_time(op, sizes)
        return replace(time, kernels=self._launches(op, sizes, time.kernels))

    def _launches(self, op: Op, sizes: Sizes, kernels: float) -> float:
        """In one direction, outside of CUDA graphs; `kernels` are those of the operator itself."""
        stack, graphs = self.job.stack, self.job.stack.cuda_graphs
        if "full_iteration" in graphs:
            return 0.0
        if op.kind == "grouped_matmul":
            return kernels + stack.expert_launches * max(sizes["experts"], 1.0)
        if op.kind == "permute" and op.region == "experts":
            counted = kernels + stack.route_launches / 2.0
            return counted * (1.0 - PREPROCESSED) if "moe_preprocess" in graphs else counted
        if op.kind == "matmul" and "experts" in op.output.dims:
            return 0.0 if "moe_router" in graphs else kernels
        return 0.0 if "attn" in graphs and op.region in ("attention", "sequence") else kernels

    def _device_time(self, op: Op, sizes: Sizes) -> OpTime:
        if op.kind in ("matmul", "grouped_matmul"):
            return self._matmul(op, sizes)
        if op.kind == "product":
            return self._product(op, sizes)
        if op.kind == "attention":
            fused = self.job.stack.attention == "flash"
            return self._attention(op, sizes) if fused else self._unfused_attention(op, sizes)
        return self._memory_bound(op, sizes)

    def _matmul(self, op: Op, sizes: Sizes) -> OpTime:
        m, n, k = matmul_shape(op, sizes)
        groups, grouped_s, bias_bytes = 1.0, 0.0, 0.0
        if op.kind == "grouped_matmul":
            groups = max(sizes["experts"], 1.0)
            m, n = sizes["expert_rows"] / groups, n / groups
            grouped_s = self.job.efficiency.group_s * (groups - 1.0)
            is_biased = any(not set(op.contracted) <= set(weight.dims) for weight in op.weights)
            bias_bytes = self.job.stack.expert_bias_bytes * m * n * groups if is_biased else 0.0
        narrow = self.precision in ("fp8", "fp4") and op.region not in ("vocab", "sequence")
        dtype = self.precision if narrow else self.wide
        # Inputs and results are read in 16 bit and written in 8, scales included; half of it each way.
        cast_bytes = 0.5 * self.job.stack.cast_bytes * groups * (m * k + m * n)
        cast_s = cast_bytes / self.memory_bytes_per_s if narrow else 0.0
        more_s = cast_s + bias_bytes / self.memory_bytes_per_s + grouped_s
        # A weight gradient is added to the sum over microbatches: read and written.
        summed = 2.0 * self.job.stack.gradient_bytes
        pace = self.job.stack.routed_pace if op.kind == "grouped_matmul" else 1.0
        return OpTime(
            forward_s=self.gemm_s(m, n, k, groups, dtype, pace=pace) + more_s,
            dgrad_s=self.gemm_s(m, k, n, groups, dtype, pace=pace) + more_s,
            wgrad_s=self.gemm_s(k, n, m, groups, dtype, summed, pace=pace) + grouped_s,
            kernels=1 + (ROUTER_KERNELS if op.kind == "matmul" and "experts" in op.output.dims else 0),
        )

    def _product(self, op: Op, sizes: Sizes) -> OpTime:
        """Of two activations; both gradients are of inputs."""
        left, right = (set(tensor.dims) for tensor in op.inputs)
        m, n, groups = (
            size_of([dim for dim in op.output.dims if dim in chosen], sizes)
            for chosen in (left - right, right - left, left & right)
        )
        k = size_of(op.contracted, sizes)
        return OpTime(
            forward_s=self.gemm_s(m, n, k, groups, self.wide),
            dgrad_s=self.gemm_s(m, k, n, groups, self.wide) + self.gemm_s(k, n, m, groups, self.wide),
        )

    def gemm_s(
        self, m: float, n: float, k: float, groups: float, dtype: str, result_bytes: float | None = None,
        pace: float = 1.0,
    ) -> float:  # fmt: skip
        """`groups` products of m×k by k×n: the best tile, dealt to compute units in waves.

        Of the last wave, half of what it leaves idle is charged.
        """
        e, device = self.job.efficiency, self.job.cluster.device
        units, width = device.compute_units, DTYPE_BYTES[dtype]
        full = TILES[0][0] * TILES[0][1] / sum(TILES[0])
        least = inf
        for tile in TILES:
            share = 1.0 - e.tile_penalty * (1.0 - tile[0] * tile[1] / sum(tile) / full)
            for rows, columns in (tile, tile[::-1]):
                waves = groups * ceil(m / rows) * ceil(n / columns) / units
                charged = (ceil(waves) + max(waves, 1.0)) / 2.0
                least = min(least, charged * units * 2.0 * rows * columns * (k + e.depth) / share)
        compute_s = least / (device.peak(dtype) * self._gemm_efficiency(dtype) * self.pace * pace)
        written = width if result_bytes is None else result_bytes
        moved = groups * ((m * k + k * n) * width + m * n * written)
        return max(compute_s, moved / self.memory_bytes_per_s) + e.kernel_s

    @property
    def pace(self) -> float:
        """What the software keeps of kernels' rates on this device, at this precision and in this release."""
        stack, family = self.job.stack, self.job.cluster.device.family
        kept = stack.pace
        for name in (family, f"{family} {self.precision}"):
            kept *= stack.family_levels.get(name, 1.0)
        months = [each for each in sorted(stack.release_levels) if each <= (stack.release or each)]
        if months or stack.release_levels:
            kept *= stack.release_levels[months[-1] if months else min(stack.release_levels)]
        # Published kernels bound what a step reaches in 16 bits.
        return kept if self.precision in ("fp8", "fp4") else min(kept, 1.0)

    def _gemm_efficiency(self, dtype: str) -> float:
        """Share of the peak; a device without the dtype computes in 16 bit, with that efficiency."""
        e, device = self.job.efficiency, self.job.cluster.device
        if dtype not in ("fp8", "fp4") or device.peak(dtype) == device.peak("bf16"):
            return e.gemm
        return e.gemm_fp8 if dtype == "fp8" else e.gemm_fp4

    def _attention(self, op: Op, sizes: Sizes) -> OpTime:
        """Fused: FLOPs of the pairs that meet; blocks of 128 queries are dealt to compute units."""
        e, device = self.job.efficiency, self.job.cluster.device
        queries, sequences = sizes[query_dim(op)], size_of(query_groups(op), sizes)
        keys = attention_keys(op, sizes)
        met = keys - keys * keys / (2.0 * sizes["seq_kv"]) if op.causal else keys
        width = sizes[op.inputs[0].dims[-1]] + sizes[op.output.dims[-1]]
        flops = 2.0 * sequences * queries * met * width
        waves = sequences * ceil(queries / 128) / device.compute_units
        rate = device.peak(self.wide) * self.pace * waves / (waves + 1.2)
        rate *= keys / (keys + e.attention_length)
        if self.job.stack.flash_attention == 2:
            rate *= e.attention_fa2
        return OpTime(
            forward_s=flops / (rate * e.attention_forward) + e.kernel_s,
            dgrad_s=2.5 * flops / (rate * e.attention_backward) + e.kernel_s,
        )

    def _unfused_attention(self, op: Op, sizes: Sizes) -> OpTime:
        """Two products, and memory traffic over the matrix of scores in between."""
        queries, sequences = sizes[query_dim(op)], size_of(query_groups(op), sizes)
        keys = attention_keys(op, sizes)
        products_s = self.gemm_s(queries, keys, sizes[op.inputs[0].dims[-1]], sequences, self.wide)
        products_s += self.gemm_s(queries, sizes[op.output.dims[-1]], keys, sequences, self.wide)
        moved = sequences * queries * keys * (4.0 * self.element_bytes + 1.0)
        softmax_s = self.job.stack.traffic * moved / self.memory_bytes_per_s
        return OpTime(
            forward_s=products_s + softmax_s,
            dgrad_s=2.0 * products_s + 1.25 * softmax_s,
            kernels=UNFUSED_ATTENTION_KERNELS,
        )

    def _memory_bound(self, op: Op, sizes: Sizes) -> OpTime:
        """Norms, elementwise work, lookups, permutations, the loss: bytes read and written."""
        if op.kind == "loss":  # fp32 logits, three times
            moved = 3.0 * tensor_bytes(op.inputs[0], sizes, 4.0)
        else:
            touched = (*op.inputs, op.output, *op.extra_outputs)
            moved = sum(tensor_bytes(tensor, sizes, self.element_bytes) for tensor in touched)
        if op.kind == "permute":
            moved /= self.job.stack.routed_pace
        time_s = self.job.stack.traffic * moved / self.memory_bytes_per_s + self.job.efficiency.kernel_s
        return OpTime(
            forward_s=time_s,
            dgrad_s=1.5 * time_s if op.kind == "norm" else time_s,
            kernels=KERNELS.get(op.kind, 1),
        )


def matmul_shape(op: Op, sizes: Sizes) -> tuple[float, float, float]:
    """Rows, columns, depth; matrices that share an input are one, side by side. Biases count for nothing."""
    matrices = [weight for weight in op.weights if set(op.contracted) <= set(weight.dims)]
    of_matrices = {dim for weight in matrices for dim in weight.dims}
    rows = size_of([dim for dim in op.output.dims if dim not in of_matrices], sizes)
    columns = sum(
        size_of([dim for dim in weight.dims if dim not in op.contracted], sizes) for weight in matrices
    )
    return rows, columns, size_of(op.contracted, sizes)


def attention_keys(op: Op, sizes: Sizes) -> float:
    """Keys that a query may meet: all of the sequence it attends to, at most a window."""
    keys = sizes["seq_enc_kv" if op.contracted[0] == "seq_enc" else op.contracted[0]]
    return min(keys, op.window) if op.window else keys


def size_of(dims: Iterable[str], sizes: Sizes) -> float:
    """Elements of a tensor over some dims."""
    return prod((sizes[dim] for dim in dims), start=1.0)


def tensor_bytes(tensor: Tensor, sizes: Sizes, activation_bytes: float) -> float:
    """Bytes of a tensor on one device."""
    return ELEMENT_BYTES.get(tensor.element, activation_bytes) * size_of(tensor.dims, sizes)
