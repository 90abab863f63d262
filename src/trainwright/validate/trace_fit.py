"""What a device reaches of its datasheet, refined by the kernels of a profiler's trace."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from types import MappingProxyType

import numpy as np

from trainwright.cluster.types import DTYPE_BYTES, Cluster
from trainwright.cost.constants import OWN, Efficiency
from trainwright.cost.gemm import gemm_time_s
from trainwright.cost.network import link_share
from trainwright.cost.operators import Machine
from trainwright.errors import BadInput
from trainwright.report.kineto import Event, Kineto
from trainwright.report.trace_values import dims, element_count, identity

DTYPES: Mapping[str, str] = MappingProxyType(
    {
        "float": "fp32", "c10::BFloat16": "bf16", "c10::Half": "fp16", "c10::Float8_e4m3fn": "fp8",
        "bfloat16": "bf16", "half": "fp16",
    }
)  # fmt: skip
_PRODUCTS = {"aten::mm": (0, 1), "aten::addmm": (1, 2), "aten::bmm": (0, 1), "aten::_scaled_mm": (0, 1)}
# Operators that read each operand once and write one result of the size of the first.
_STREAMS = (
    "aten::add", "aten::add_", "aten::mul", "aten::mul_", "aten::gelu", "aten::silu", "aten::relu",
    "aten::native_layer_norm", "aten::copy_", "aten::gelu_backward", "aten::silu_backward",
)  # fmt: skip
_ROUNDS = 8
_LEAST = 0.001  # of a datasheet's rate: less is a mistake in the entry
_LEAST_STARTS = 20.0  # a kernel must last so many times its start to tell a rate
_LEAST_STREAM_BYTES = 4e6
_LEAST_MESSAGE_BYTES = 4e6
_LINKS = ("inner_link", "outer_link")
_BUS = {"allreduce": 2.0, "allgather": 1.0, "reducescatter": 1.0, "alltoall": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One kernel of a trace: which constant it tells about, its time, and what was predicted for it."""

    constant: str
    name: str
    seconds: float
    predicted_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Refined:
    """A constant before and after, the kernels that it rests on, and what it predicts for them after."""

    constant: str
    before: float
    after: float
    kernels: int
    measured_s: float
    predicted_s: float


def refine(traces: Sequence[Kineto], cluster: Cluster, efficiency: Efficiency) -> tuple[Refined, ...]:
    """The constants that traces tell about, such that what they predict in all is what was measured."""
    if not any(trace.shapes for trace in traces):
        raise BadInput(
            "trace", "no shapes", "does not say what sizes operators had", "record it with record_shapes=True"
        )
    at, found = efficiency, _scaled(traces, cluster, efficiency, efficiency)
    for _ in range(_ROUNDS):  # a product may be bound by memory at one constant and not at another
        at = refined_efficiency(at, found)
        found = _scaled(traces, cluster, at, efficiency)
    if not found:
        raise BadInput(
            "trace", f"{sum(len(trace.events) for trace in traces)} events",
            "has no products, streams or collectives that are large enough to tell a rate",
            "record a step of the model that you train",
        )  # fmt: skip
    return tuple(found)


def _scaled(traces: Sequence[Kineto], cluster: Cluster, at: Efficiency, first: Efficiency) -> list[Refined]:
    """Each constant scaled by what it predicts in all over what was measured."""
    samples = [each for trace in traces for each in samples_of(trace, cluster, at)]
    found = []
    for constant in dict.fromkeys(each.constant for each in samples):
        own = [each for each in samples if each.constant == constant]
        measured, predicted = sum(each.seconds for each in own), sum(each.predicted_s for each in own)
        after = float(np.clip(_value(at, cluster, constant) * predicted / measured, _LEAST, 1.0))
        found.append(
            Refined(
                constant=constant, before=_value(first, cluster, constant), after=after, kernels=len(own),
                measured_s=measured, predicted_s=predicted,
            )
        )  # fmt: skip
    return found


def _value(efficiency: Efficiency, cluster: Cluster, constant: str) -> float:
    """A constant; of links that state none, what their fabric reaches."""
    if constant in _LINKS:
        index = min(_LINKS.index(constant), len(cluster.levels) - 1)
        return link_share(cluster.levels[index], _LINKS.index(constant), efficiency)
    return float(getattr(efficiency, constant))


def refined_efficiency(efficiency: Efficiency, found: Sequence[Refined]) -> Efficiency:
    """The constants with some refined."""
    return replace(efficiency, **{each.constant: each.after for each in found})  # type: ignore[arg-type]


def samples_of(trace: Kineto, cluster: Cluster, efficiency: Efficiency) -> Iterator[Sample]:
    """The kernels of a trace that tell about constants."""
    seconds = _device_seconds(trace)
    for event in trace.events:
        taken = seconds(event)
        if event.category == "cpu_op" and taken > 0.0:
            yield from _product(event, taken, cluster, efficiency)
            yield from _stream(event, taken, cluster, efficiency)
        if event.about.get("Collective name") and event.end_s > event.start_s:
            yield from _collective(event, cluster, efficiency)


def _device_seconds(trace: Kineto) -> Callable[[Event], float]:
    """How long the device worked for an operator: its kernels, or where none are traced the operator."""
    if not trace.on_device:
        return lambda event: event.end_s - event.start_s
    kernels: dict[object, float] = {}
    for event in trace.events:
        if event.category == "kernel" and "External id" in event.about:
            key = identity(event.about["External id"])
            kernels[key] = kernels.get(key, 0.0) + event.end_s - event.start_s
    return lambda event: kernels.get(identity(event.about.get("External id")), 0.0)


def _machine(cluster: Cluster, efficiency: Efficiency, dtype: str) -> Machine:
    return Machine(device=cluster.device, efficiency=efficiency, stack=OWN, precision=dtype)


def _product(event: Event, taken: float, cluster: Cluster, efficiency: Efficiency) -> Iterator[Sample]:
    if event.name not in _PRODUCTS:
        return
    first, second = _PRODUCTS[event.name]
    sizes, dtype = _operands(event), _dtype(event, first)
    if dtype is None or max(first, second) >= len(sizes) or len(sizes[first]) < 2 or len(sizes[second]) < 2:
        return
    *groups, rows, depth = sizes[first]
    columns = sizes[second][-1]
    machine = _machine(cluster, efficiency, dtype)
    m, n, k, count = (np.array([float(each)]) for each in (rows, columns, depth, prod(groups)))
    unit, width = machine.matrix_unit(dtype), DTYPE_BYTES[dtype]
    predicted = float(gemm_time_s(unit, m, n, k, count, width)[0])
    fed = float(gemm_time_s(replace(unit, memory_bytes_per_s=np.inf), m, n, k, count, width)[0])
    # One that memory holds up, or that has barely begun, tells nothing of the rate of products.
    if predicted <= fed and predicted > _LEAST_STARTS * efficiency.kernel_s:
        constant = {"fp8": "gemm_fp8", "fp4": "gemm_fp4"}.get(dtype, "gemm")
        yield Sample(constant=constant, name=event.name, seconds=taken, predicted_s=predicted)


def _stream(event: Event, taken: float, cluster: Cluster, efficiency: Efficiency) -> Iterator[Sample]:
    dtype = _dtype(event, 0)
    if event.name not in _STREAMS or dtype is None:
        return
    elements = [prod(each) for each in _operands(event) if each]
    moved = DTYPE_BYTES[dtype] * (sum(elements) + max(elements, default=0))
    if moved >= _LEAST_STREAM_BYTES:
        predicted = moved / _machine(cluster, efficiency, dtype).memory_bytes_per_s + efficiency.kernel_s
        yield Sample(constant="memory", name=event.name, seconds=taken, predicted_s=predicted)


def _collective(event: Event, cluster: Cluster, efficiency: Efficiency) -> Iterator[Sample]:
    """A ring's time at the link's rate: inside a node if the group fits in one."""
    kind = str(event.about["Collective name"]).replace("_", "").lower().removeprefix("all_")
    kind = next((known for known in _BUS if known in kind), "")
    ranks = element_count(event.about.get("Group size"))
    counts = (element_count(event.about.get(f"{way} msg nelems")) for way in ("In", "Out"))
    dtype = DTYPES.get(
        str(event.about.get("dtype", "")).lower(), DTYPES.get(str(event.about.get("dtype", "")))
    )
    size = max(counts) * (DTYPE_BYTES[dtype] if dtype else 0.0)
    if not kind or ranks < 2 or size < _LEAST_MESSAGE_BYTES:
        return
    inside = ranks <= cluster.node_size
    level = cluster.levels[0 if inside or len(cluster.levels) == 1 else 1]
    constant = _LINKS[0 if inside else 1]
    reached = level.bytes_per_s * _value(efficiency, cluster, constant)
    predicted = _BUS[kind] * (ranks - 1) / ranks * size / reached
    yield Sample(
        constant=constant, name=event.name, seconds=event.end_s - event.start_s, predicted_s=predicted
    )


def _operands(event: Event) -> list[list[int]]:
    return dims(event.about.get("Input Dims"))


def _dtype(event: Event, index: int) -> str | None:
    types = event.about.get("Input type")
    if not isinstance(types, list) or index >= len(types):
        return None
    return DTYPES.get(str(types[index]))
