"""The kernels of training as functions that can be timed, at any shape."""

from collections.abc import Callable, Mapping
from math import ceil

import torch
import torch.nn.functional as F

from trainwright.cost.profile import ATTENTIONS, PRODUCTS
from trainwright.runtime.kernels.elementwise import rotated

Turn = Callable[[int], object]
Sizes = tuple[float, ...]

_COLD_BYTES = 64 << 20  # of operands in turns, so that none is found in a cache as it never is in a step
_MOST_COPIES = 8
_WIDTH, _HEAD_DIM = 512, 32  # of what is streamed
_VOCAB = 4096


def build_turn(work: str, sizes: Sizes, device: torch.device, dtype: torch.dtype) -> Turn:
    """A function that does a work of given sizes, with other operands at every turn."""
    if work in PRODUCTS:
        return _product(work, sizes, device, dtype)
    if work in ATTENTIONS:
        return _attention(work, sizes, device, dtype)
    name, _, way = work.partition(".")
    return _STREAMS[name](sizes[0], way, device, dtype)


def causal_share(work: str) -> float:
    """What share of all pairs meet in the attention that is measured: fused kernels are timed causal."""
    return 0.5 if work.startswith("attention") else 1.0


def _copies(size_bytes: float) -> int:
    return min(max(ceil(_COLD_BYTES / max(size_bytes, 1.0)), 2), _MOST_COPIES)


def _product(work: str, sizes: Sizes, device: torch.device, dtype: torch.dtype) -> Turn:
    rows, columns, depth = (int(each) for each in sizes)
    element = torch.finfo(dtype).bits // 8
    count = _copies(element * (rows * depth + depth * columns + rows * columns))

    def made(*shape: int) -> list[torch.Tensor]:
        return [torch.randn(shape, device=device).to(dtype) for _ in range(count)]

    if work == "product.forward":
        left, right, bias = made(rows, depth), made(depth, columns), made(columns)
        return lambda i: torch.addmm(bias[i % count], left[i % count], right[i % count])
    if work == "product.data":
        left, right = made(rows, depth), made(columns, depth)
        return lambda i: left[i % count] @ right[i % count].t()
    left, right, total = made(depth, rows), made(depth, columns), made(rows, columns)
    return lambda i: total[i % count].addmm_(left[i % count].t(), right[i % count])


def _attention(work: str, sizes: Sizes, device: torch.device, dtype: torch.dtype) -> Turn:
    groups, queries, keys, width = (int(each) for each in sizes)
    head = width // 2
    backward = work.endswith("backward")

    def made(length: int) -> torch.Tensor:
        return torch.randn(1, groups, length, head, device=device).to(dtype).requires_grad_(backward)

    count = 2
    operands = [(made(queries), made(keys), made(keys)) for _ in range(count)]
    forward = _fused if work.startswith("attention") else _unfused
    if not backward:
        return lambda i: forward(*operands[i % count])
    results = [forward(*each) for each in operands]
    return lambda i: torch.autograd.grad(
        results[i % count], operands[i % count], results[i % count], retain_graph=True
    )


def _fused(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


def _unfused(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    return torch.softmax(scores, dim=-1) @ value


def _stream(
    tensors: float, function: Callable[..., torch.Tensor], parts: int, *, weights: int = 0
) -> Callable[..., Turn]:
    """Work on `parts` inputs of one shape and weights of its width; `tensors` of that shape are moved."""

    def build(moved: float, way: str, device: torch.device, dtype: torch.dtype) -> Turn:
        element = torch.finfo(dtype).bits // 8
        rows = max(round(moved / (tensors * element * _WIDTH)), 1)
        backward = way == "backward"
        count = _copies(moved)

        def made(*shape: int) -> torch.Tensor:
            return torch.randn(shape, device=device).to(dtype).requires_grad_(backward)

        operands = [
            (*(made(rows, _WIDTH) for _ in range(parts)), *(made(_WIDTH) for _ in range(weights)))
            for _ in range(count)
        ]
        if not backward:
            return lambda i: function(*operands[i % count])
        results = [function(*each) for each in operands]
        given = [torch.ones_like(each) for each in results]
        return lambda i: torch.autograd.grad(
            results[i % count], operands[i % count], given[i % count], retain_graph=True
        )

    return build


def _add(moved: float, way: str, device: torch.device, dtype: torch.dtype) -> Turn:
    """A sum; its backward is one too, of the gradients of a value that is read twice."""
    del way
    return _stream(3.0, torch.add, 2)(moved, "forward", device, dtype)


def _rope(tensor: torch.Tensor) -> torch.Tensor:
    heads = tensor.view(1, tensor.shape[0], -1, _HEAD_DIM)
    return rotated(heads, 0, heads.shape[1])


def _gather(moved: float, way: str, device: torch.device, dtype: torch.dtype) -> Turn:
    """Rows of a table by number; backward, their gradients as a table."""
    element = torch.finfo(dtype).bits // 8
    rows = max(round(moved / (element * _WIDTH)), 1)
    table = torch.randn(_VOCAB, _WIDTH, device=device).to(dtype).requires_grad_(way == "backward")
    wanted = torch.randint(_VOCAB, (rows,), device=device)
    if way == "forward":
        return lambda _: F.embedding(wanted, table)
    result = F.embedding(wanted, table)
    given = torch.ones_like(result)
    return lambda _: torch.autograd.grad(result, table, given, retain_graph=True)


def _loss(moved: float, way: str, device: torch.device, dtype: torch.dtype) -> Turn:
    """Cross-entropy of fp32 logits, which cost counts three times."""
    del dtype
    rows = max(round(moved / (12.0 * _VOCAB)), 1)
    logits = torch.randn(rows, _VOCAB, device=device, requires_grad=way == "backward")
    wanted = torch.randint(_VOCAB, (rows,), device=device)
    if way == "forward":
        return lambda _: F.cross_entropy(logits, wanted, reduction="sum")
    result = F.cross_entropy(logits, wanted, reduction="sum")
    return lambda _: torch.autograd.grad(result, logits, retain_graph=True)


def _permute(moved: float, way: str, device: torch.device, dtype: torch.dtype) -> Turn:
    element = torch.finfo(dtype).bits // 8
    rows = max(round(moved / (2.0 * element * _WIDTH)), 1)
    source, order = torch.randn(rows, _WIDTH, device=device).to(dtype), torch.randperm(rows, device=device)
    total = torch.zeros_like(source)
    if way == "forward":
        return lambda _: source.index_select(0, order)
    return lambda _: total.index_add_(0, order, source)


def _copy(moved: float, way: str, device: torch.device, dtype: torch.dtype) -> Turn:
    del way
    element = torch.finfo(dtype).bits // 8
    source = torch.randn(max(round(moved / (2.0 * element)), 1), device=device).to(dtype)
    target = torch.empty_like(source)
    return lambda _: target.copy_(source)


def _optimizer(moved: float, way: str, device: torch.device, dtype: torch.dtype) -> Turn:
    """An update of AdamW with clipping, 28 bytes a parameter: moments and gradient twice, weight once."""
    del way, dtype
    weight = torch.randn(max(round(moved / 28.0), 1), device=device, requires_grad=True)
    weight.grad = torch.randn_like(weight) * 1e-3
    optimizer = torch.optim.AdamW([weight], lr=1e-6)

    def turn(_: int) -> None:
        assert weight.grad is not None
        torch.linalg.vector_norm(weight.grad)
        weight.grad.mul_(1.0)
        optimizer.step()
        weight.grad.zero_()

    return turn


_STREAMS: Mapping[str, Callable[[float, str, torch.device, torch.dtype], Turn]] = {
    "norm": _stream(2.0, lambda x, w, b: F.layer_norm(x, (_WIDTH,), w, b), 1, weights=2),
    "rms_norm": _stream(2.0, lambda x, w: F.rms_norm(x, (_WIDTH,), w), 1, weights=1),
    "add": _add,
    "gelu": _stream(2.0, F.gelu, 1),
    "swiglu": _stream(3.0, lambda a, b: F.silu(a) * b, 2),
    "rope": _stream(2.0, _rope, 1),
    "gather": _gather,
    "loss": _loss,
    "permute": _permute,
    "copy": _copy,
    "optimizer": _optimizer,
}
