"""The time of one operator, forward and backward, over arrays of shapes."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainwright.cluster.types import DTYPE_BYTES, Device
from trainwright.cost.constants import Efficiency, Stack
from trainwright.cost.gemm import MatrixUnit, gemm_time_s, gemm_traffic_bytes
from trainwright.cost.kernels import Kernels
from trainwright.cost.measured import attention_seconds, product_seconds, stream_name
from trainwright.model.graph import ELEMENT_BYTES, Op, Tensor, query_dim, query_groups

Array = NDArray[np.float64]
Sizes = Mapping[str, Array]

# Kernels that an operator launches, by kind: what the host pays for.
_KERNELS: Mapping[str, float] = {
    "matmul": 1.0, "grouped_matmul": 1.0, "product": 1.0, "attention": 1.0, "norm": 1.0, "elementwise": 1.0,
    "gather": 2.0, "loss": 6.0, "permute": 6.0,
}  # fmt: skip
_UNFUSED_ATTENTION_KERNELS = 6.0
# Where CUDA graphs stand for launches: Megatron-Core's scopes, and the share of a permutation's launches
# that its preprocessing makes (counts and offsets of each expert's tokens).
WHOLE_STEP_GRAPH = "full_iteration"
_PREPROCESSED = 0.5
ROW_STATE_BYTES = 4.0  # of a table's row: the moment of row-wise Adagrad, in fp32
_ROUTER_KERNELS = 8.0
# Bytes of an input that a linear keeps quantized; nvfp4 has a scale of one byte per 16 elements.
KEPT_INPUT_BYTES: Mapping[str, float] = {"fp8": DTYPE_BYTES["fp8"], "fp4": DTYPE_BYTES["fp4"] + 1.0 / 16.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A device with a stack on it: everything that the time of an operator depends on but its shape."""

    device: Device
    efficiency: Efficiency
    stack: Stack
    precision: str

    @property
    def memory_bytes_per_s(self) -> float:
        """Achieved bandwidth of the device's own memory."""
        return self.device.memory[0].bytes_per_s * self.efficiency.memory

    @property
    def wide(self) -> str:
        """The dtype of what low-precision recipes leave in 16 bit (attention, logits, routers)."""
        return "bf16" if self.precision in ("fp8", "fp4") else self.precision

    @property
    def quantizes_inputs(self) -> bool:
        """Whether linears keep their inputs for backward in fp8 or fp4."""
        return self.stack.quantized_inputs and self.precision in KEPT_INPUT_BYTES

    @property
    def kept_input_width(self) -> float:
        """How wide a quantized input is, relative to the compute dtype."""
        return KEPT_INPUT_BYTES.get(self.precision, self.element_bytes) / self.element_bytes

    @property
    def element_bytes(self) -> float:
        """Bytes of an activation element."""
        return DTYPE_BYTES[self.wide]

    def matrix_unit(self, dtype: str, *, share: float = 1.0, grouped: bool = False) -> MatrixUnit:
        """The matrix unit at one dtype and share of the pace; `grouped`, of products with operands apart."""
        e = self.efficiency
        reached: float | Array = {"fp8": e.gemm_fp8, "fp4": e.gemm_fp4}.get(dtype, e.gemm)
        if reached != e.gemm:  # a device without the dtype works in 16 bit
            reached = np.where(self.device.peak(dtype) == self.device.peak("bf16"), e.gemm, reached)
        return MatrixUnit(
            peak_flops_per_s=self.device.peak(dtype),
            memory_bytes_per_s=self.memory_bytes_per_s,
            units=self.device.compute_units,
            efficiency=reached * self.pace * share,  # type: ignore[arg-type]
            depth=e.depth,
            tile_penalty=e.tile_penalty,
            overhead_s=e.kernel_s,
            group_s=e.group_s if grouped else 0.0,
            buffer_bytes=self.buffer_bytes,
        )

    @property
    def pace(self) -> float:
        """What the stack keeps of kernels' rates on this device."""
        return self.stack.pace_on(self.device.family, self.precision)

    @property
    def buffer_bytes(self) -> float:
        """The on-chip buffer as products see it: endless unless their traffic depends on it."""
        return self.device.buffer_bytes if self.efficiency.buffered else np.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTime:
    """Device seconds of one operator: forward, gradients of its inputs and of its weights; and what the host
    launches for it in each direction.
    """

    forward_s: Array
    data_s: Array
    weight_s: Array
    kernels: Array

    def scaled(self, factor: Array | float) -> "OpTime":
        """The operator with as many kernels, each `factor` times as long."""
        return OpTime(
            forward_s=self.forward_s * factor, data_s=self.data_s * factor, weight_s=self.weight_s * factor,
            kernels=self.kernels,
        )  # fmt: skip


def op_time(op: Op, sizes: Sizes, machine: Machine) -> OpTime:
    """The time of `op` whose dims have the given (already split) sizes on one device."""
    if machine.efficiency.kernels is not None:
        return _measured(op, sizes, machine, machine.efficiency.kernels)
    return _TIMES[op.kind](op, sizes, machine)


def _measured(op: Op, sizes: Sizes, machine: Machine, kernels: Kernels) -> OpTime:
    """From measured kernels: the same shapes, and the same bytes, as the formulas below."""
    device = machine.device
    rates = (device.peak(machine.wide), device.memory[0].bytes_per_s)
    own_s = kernels.profile.operator_s * kernels.times
    none = np.zeros(1)
    # Where no time of an operator is known, the stack's host pays for its kernels.
    launched = np.full(1, 0.0 if own_s else _KERNELS[op.kind])
    if op.kind in ("matmul", "grouped_matmul", "product"):
        rates = (device.peak(_product_dtype(op, machine)), rates[1])
        m, n, k, groups = _product_shape(op, sizes)
        shapes = {"forward": (m, n, k), "data": (m, k, n), "weight": (k, n, m)}
        ways = {
            way: product_seconds(kernels, way, *shape, groups) * kernels.on(*rates, f"product.{way}")
            for way, shape in shapes.items()
        }
        forward_s, data_s, weight_s = ways.values()
        if op.kind == "product":  # both gradients are of inputs
            data_s, weight_s = data_s + weight_s, none
        weight_s = weight_s if op.kind == "product" else weight_s + own_s
        return OpTime(forward_s=forward_s + own_s, data_s=data_s + own_s, weight_s=weight_s, kernels=launched)
    if op.kind == "attention":
        unfused = machine.stack.attention == "unfused"
        width = 0.5 * (sizes[op.inputs[0].dims[-1]] + sizes[op.output.dims[-1]])
        keys = attention_keys(op, sizes)
        shape = (_product(sizes, query_groups(op)), sizes[query_dim(op)], keys, 2.0 * width)
        forward_s, data_s = (
            each * kernels.on(*rates, "attention.forward")
            for each in attention_seconds(kernels, unfused, shape, _attended(op, sizes) / keys)
        )
    else:
        moved = _moved(op, sizes, machine)
        name = stream_name(op)
        scale = kernels.on(*rates, name)
        forward_s, data_s = (
            scale * kernels.seconds(f"{name}.{way}", moved) for way in ("forward", "backward")
        )
    return OpTime(forward_s=forward_s + own_s, data_s=data_s + own_s, weight_s=none, kernels=launched)


def bytes_of(tensor: Tensor, sizes: Sizes, activation_bytes: float) -> Array:
    """Bytes of a tensor as one device holds it."""
    width = float(ELEMENT_BYTES.get(tensor.element, activation_bytes))
    total = np.asarray(width if tensor.dims else [width])
    for dim in tensor.dims:
        total = total * sizes[dim]
    return total


def matmul_shape(op: Op, sizes: Sizes) -> tuple[Array, Array, Array]:
    """Rows, columns and depth of a matrix product; several weights that share the input count as one."""
    matrices = [w for w in op.weights if set(op.contracted) <= set(w.dims)]
    inside = {dim for weight in matrices for dim in weight.dims}
    rows = _product(sizes, [dim for dim in op.output.dims if dim not in inside])
    depth = _product(sizes, op.contracted)
    columns = sum(
        (_product(sizes, [d for d in w.dims if d not in op.contracted]) for w in matrices), start=np.zeros(1)
    )
    return rows, columns, depth


def _product_dtype(op: Op, machine: Machine) -> str:
    """What matrix units are given: recipes of few bits leave logits, routers and attention in 16."""
    narrow = machine.precision in ("fp8", "fp4") and op.region not in ("vocab", "sequence")
    return machine.precision if narrow and op.kind != "product" else machine.wide


def _product_shape(op: Op, sizes: Sizes) -> tuple[Array, Array, Array, Array]:
    """Rows, columns, depth and number of the products that an operator makes at once."""
    if op.kind == "product":
        left, right = (set(each.dims) for each in op.inputs)
        shared = [dim for dim in op.output.dims if dim in left & right]
        rows = [dim for dim in op.output.dims if dim in left - right]
        columns = [dim for dim in op.output.dims if dim in right - left]
        m, n, k, groups = (_product(sizes, dims) for dims in (rows, columns, op.contracted, shared))
        return m, n, k, groups
    m, n, k = matmul_shape(op, sizes)
    if op.kind == "grouped_matmul":
        groups = np.maximum(sizes["experts"], 1.0)
        return sizes["expert_rows"] / groups, n / groups, k, groups
    return m, n, k, np.ones(1)


def _matmul(op: Op, sizes: Sizes, machine: Machine) -> OpTime:
    dtype = _product_dtype(op, machine)
    narrow = dtype != machine.wide
    grouped = op.kind == "grouped_matmul"
    unit = machine.matrix_unit(dtype, share=_routed_share(op, machine.stack), grouped=grouped)
    size = DTYPE_BYTES[dtype]
    m, n, k, groups = _product_shape(op, sizes)
    cast = machine.stack.cast_bytes if narrow else 0.0
    cast_s = (m * k + m * n) * groups * cast / machine.memory_bytes_per_s
    beside_s = 0.5 * cast_s + _expert_bias_s(op, m * n * groups, machine)
    return OpTime(
        forward_s=gemm_time_s(unit, m, n, k, groups, size) + beside_s,
        data_s=gemm_time_s(unit, m, k, n, groups, size) + beside_s,
        # Weight gradients are added to what earlier microbatches left: read and written.
        weight_s=gemm_time_s(unit, k, n, m, groups, size, 2.0 * machine.stack.gradient_bytes),
        kernels=_launches(op, machine.stack, groups),
    )


def _routed_share(op: Op, stack: Stack) -> float:
    """What an operator keeps of the pace of others: work on routed tokens is slower than its shapes say."""
    return stack.routed_pace if op.kind in ("grouped_matmul", "permute") else 1.0


def _expert_bias_s(op: Op, elements: Array, machine: Machine) -> Array:
    """What biases of experts add in one direction where the stack does not fuse them."""
    biased = op.kind == "grouped_matmul" and len(op.weights) > sum(
        set(op.contracted) <= set(weight.dims) for weight in op.weights
    )
    return elements * machine.stack.expert_bias_bytes * biased / machine.memory_bytes_per_s


def _launches(op: Op, stack: Stack, groups: Array | float = 1.0) -> Array:
    """What the host launches for an operator in one direction, outside of CUDA graphs.

    Stacks without a grouped kernel launch the products of a rank's experts one by one. Routing without drops
    reads token counts back, sorts and exchanges them: many small operators besides the permutation.
    """
    graphs = stack.cuda_graphs
    count = np.full(1, _KERNELS[op.kind])
    if op.kind == "attention" and stack.attention == "unfused":
        count = np.full(1, _UNFUSED_ATTENTION_KERNELS)
    is_router = op.kind == "matmul" and "experts" in op.output.dims
    if WHOLE_STEP_GRAPH in graphs:
        return np.zeros(1)
    if op.kind == "grouped_matmul":
        return count + stack.expert_launches * np.asarray(groups)
    if op.kind == "permute" and op.region == "experts":
        left = 1.0 - _PREPROCESSED if "moe_preprocess" in graphs else 1.0
        return left * (count + 0.5 * stack.route_launches)
    if is_router:
        return np.zeros(1) if "moe_router" in graphs else count + _ROUTER_KERNELS
    return np.zeros(1) if "attn" in graphs and op.region in ("attention", "sequence") else count


def _attention(op: Op, sizes: Sizes, machine: Machine) -> OpTime:
    if machine.stack.attention == "unfused":
        return _unfused_attention(op, sizes, machine)
    queries, rows = sizes[query_dim(op)], _product(sizes, query_groups(op))
    width = sizes[op.inputs[0].dims[-1]] + sizes[op.output.dims[-1]]
    flops = 2.0 * rows * queries * _attended(op, sizes) * width
    # Blocks of 128 queries are dealt to compute units; few of them leave units idle at the end.
    waves = rows * np.ceil(queries / 128.0) / machine.device.compute_units
    rate = machine.device.peak(machine.wide) * machine.pace * waves / (waves + 1.2)
    e = machine.efficiency
    # Rows of queries start and end, and meet a diagonal, once for all their keys.
    keys = attention_keys(op, sizes)
    rate = rate * keys / (keys + e.attention_length)
    if machine.stack.flash_attention < 3:
        rate = rate * e.attention_fa2
    return OpTime(
        forward_s=flops / (rate * e.attention_forward) + e.kernel_s,
        data_s=2.5 * flops / (rate * e.attention_backward) + e.kernel_s,
        weight_s=np.zeros(1),
        kernels=_launches(op, machine.stack),
    )


def _unfused_attention(op: Op, sizes: Sizes, machine: Machine) -> OpTime:
    """Scores, scaled masked softmax, dropout and weighted values as separate kernels over the s×s matrix."""
    queries, keys = sizes[query_dim(op)], attention_keys(op, sizes)
    rows = _product(sizes, query_groups(op))
    unit, size = machine.matrix_unit(machine.wide), machine.element_bytes
    scores_s = gemm_time_s(unit, queries, keys, sizes[op.inputs[0].dims[-1]], rows, size)
    values_s = gemm_time_s(unit, queries, sizes[op.output.dims[-1]], keys, rows, size)
    matrix = rows * queries * keys
    softmax_s = machine.stack.traffic * matrix * (4.0 * size + 1.0) / machine.memory_bytes_per_s
    return OpTime(
        forward_s=scores_s + values_s + softmax_s,
        data_s=2.0 * (scores_s + values_s) + 1.25 * softmax_s,
        weight_s=np.zeros(1),
        kernels=_launches(op, machine.stack),
    )


def _activation_product(op: Op, sizes: Sizes, machine: Machine) -> OpTime:
    """The product of two activations, a matrix each for all dims that they and the result share."""
    m, n, k, groups = _product_shape(op, sizes)
    unit, size = machine.matrix_unit(machine.wide), machine.element_bytes
    return OpTime(
        forward_s=gemm_time_s(unit, m, n, k, groups, size),
        data_s=gemm_time_s(unit, m, k, n, groups, size) + gemm_time_s(unit, k, n, m, groups, size),
        weight_s=np.zeros(1),
        kernels=_launches(op, machine.stack),
    )


def attention_keys(op: Op, sizes: Sizes) -> Array:
    """Keys that a query may meet: all of its own sequence or of the encoder's, at most a window."""
    dim = op.contracted[0]
    keys = sizes["seq_enc_kv" if dim == "seq_enc" else dim]
    return np.minimum(keys, float(op.window)) if op.window else keys


def _attended(op: Op, sizes: Sizes) -> Array:
    """Keys that a query meets on average: of s queries with a causal reach of w, s·w − w²/2 pairs meet."""
    keys = attention_keys(op, sizes)
    return keys - keys * keys / (2.0 * sizes["seq_kv"]) if op.causal else keys


def _moved(op: Op, sizes: Sizes, machine: Machine) -> Array:
    """Bytes that an operator reads and writes that is no product; of a loss, fp32 logits three times."""
    if op.kind == "loss":
        return 3.0 * bytes_of(op.inputs[0], sizes, 4.0)
    moved = sum(
        (bytes_of(t, sizes, machine.element_bytes) for t in (*op.inputs, op.output, *op.extra_outputs)),
        start=np.zeros(1),
    )
    return moved + looked_up_bytes(op, sizes, machine.element_bytes) if op.sparse else moved


def looked_up_bytes(op: Op, sizes: Sizes, element_bytes: float) -> Array:
    """Bytes of the rows that a sparse gather reads: `pooling` of each table for a sample."""
    return bytes_of(op.output, sizes, element_bytes) * sizes["pooling"]


def table_traffic_bytes(op: Op, sizes: Sizes, element_bytes: float) -> tuple[Array, Array]:
    """Bytes of tables and of their rows' state that a sparse gather meets, forward and backward."""
    rows = looked_up_bytes(op, sizes, element_bytes)
    state = rows / (sizes[op.output.dims[-1]] * element_bytes) * ROW_STATE_BYTES
    return rows, 2.0 * (rows + state)


def _lookup_backward_bytes(op: Op, sizes: Sizes, machine: Machine) -> Array:
    """What the update of looked-up rows moves: gradient in, rows and their state read and written."""
    read, updated = table_traffic_bytes(op, sizes, machine.element_bytes)
    return _moved(op, sizes, machine) - read + updated


def _streaming(op: Op, sizes: Sizes, machine: Machine) -> OpTime:
    """Norms, element-wise work, gathers, permutations and the loss: memory traffic."""
    moved = _moved(op, sizes, machine) / _routed_share(op, machine.stack)
    time_s = machine.stack.traffic * moved / machine.memory_bytes_per_s + machine.efficiency.kernel_s
    if op.sparse:
        back = _lookup_backward_bytes(op, sizes, machine)
        data_s = machine.stack.traffic * back / machine.memory_bytes_per_s + machine.efficiency.kernel_s
    else:
        data_s = 1.5 * time_s if op.kind == "norm" else time_s
    return OpTime(
        forward_s=time_s,
        data_s=data_s,
        weight_s=np.zeros(1),
        kernels=_launches(op, machine.stack),
    )


def op_traffic_bytes(op: Op, sizes: Sizes, machine: Machine) -> tuple[Array, Array]:
    """Bytes that an operator moves between memory and chip, forward and backward."""
    if op.kind in ("matmul", "grouped_matmul", "product"):
        m, n, k, groups = _product_shape(op, sizes)
        size = DTYPE_BYTES[_product_dtype(op, machine)]
        added = size if op.kind == "product" else 2.0 * machine.stack.gradient_bytes
        forward, data, weight = (
            gemm_traffic_bytes(shape, size, written, machine.buffer_bytes)
            for shape, written in (
                ((m, n, k, groups), size), ((m, k, n, groups), size), ((k, n, m, groups), added),
            )
        )  # fmt: skip
        return forward, data + weight
    if op.sparse:
        both = (_moved(op, sizes, machine), _lookup_backward_bytes(op, sizes, machine))
        return machine.stack.traffic * both[0], machine.stack.traffic * both[1]
    moved = _moved(op, sizes, machine) * (1.0 if op.kind == "attention" else machine.stack.traffic)
    if op.kind == "attention" and machine.stack.attention == "unfused":
        rows = _product(sizes, query_groups(op)) * sizes[query_dim(op)]
        moved = moved + machine.stack.traffic * rows * attention_keys(op, sizes) * (
            4.0 * machine.element_bytes + 1.0
        )
    return moved, moved * (2.0 if op.kind == "attention" else 1.5 if op.kind == "norm" else 1.0)


def _product(sizes: Sizes, dims: "list[str] | tuple[str, ...]") -> Array:
    result = np.ones(1)
    for dim in dims:
        result = result * sizes[dim]
    return result


_TIMES = {
    "matmul": _matmul,
    "grouped_matmul": _matmul,
    "product": _activation_product,
    "attention": _attention,
    "norm": _streaming,
    "elementwise": _streaming,
    "gather": _streaming,
    "loss": _streaming,
    "permute": _streaming,
}
