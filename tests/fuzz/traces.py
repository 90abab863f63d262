"""Small valid traces in the form of PyTorch's profiler, on a GPU and on the host."""

import json
from typing import Any

_PRODUCT = {"Input Dims": [[4096, 4096], [4096, 4096]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
_STREAM = {"Input Dims": [[8192, 4096], [8192, 4096]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
_ALL_REDUCE = {
    "Collective name": "allreduce",
    "In msg nelems": 16777216,
    "Out msg nelems": 16777216,
    "Group size": 2,
    "dtype": "BFloat16",
    "Process Group Name": "0",
    "Process Group Description": "mesh_tp",
    "stream": 20,
}


def _span(name: str, category: str, start: float, lasts: float, thread: int, **about: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 0,
        "tid": thread,
        "ts": start,
        "dur": lasts,
        "args": about,
    }


def _step(number: int, start: float) -> list[dict[str, Any]]:
    at = 10 * number
    return [
        _span(f"ProfilerStep#{number}", "user_annotation", start, 5000.0, 1),
        _span("aten::mm", "cpu_op", start + 1, 20.0, 1, **{"External id": at, **_PRODUCT}),
        _span("aten::add_", "cpu_op", start + 30, 20.0, 1, **{"External id": at + 1, **_STREAM}),
        _span("Optimizer.step#AdamW.step", "user_annotation", start + 3000, 1000.0, 1),
        _span("sm90_xmma_gemm_bf16bf16", "kernel", start + 100, 300.0, 7, **{"External id": at, "stream": 7}),
        _span("vectorized_elementwise_kernel", "kernel", start + 500, 120.0, 7, **{"External id": at + 1}),
        _span("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "kernel", start + 700, 900.0, 20, **_ALL_REDUCE),
        _span("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", start + 1700, 100.0, 7),
        _span("multi_tensor_apply_kernel", "kernel", start + 3100, 800.0, 7),
    ]


def gpu_trace() -> str:
    """Two steps of rank 0 on a GPU."""
    events = [
        *_step(1, 1000.0),
        *_step(2, 6000.0),
        {"ph": "i", "name": "Record Window End", "ts": 11000.0, "s": "g"},
    ]
    about = {"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2}}
    return json.dumps({**about, "traceEvents": events})


def host_trace() -> str:
    """A step on the host, whose operators call one another."""
    spans = [each for each in _step(1, 1000.0) if each["cat"] not in ("kernel", "gpu_memcpy")]
    spans.append(_span("aten::linear", "cpu_op", 2000.0, 900.0, 1))
    spans.append(_span("aten::addmm", "cpu_op", 2100.0, 700.0, 1, **_PRODUCT))
    return json.dumps({"schemaVersion": 1, "traceEvents": spans})
