"""What PyTorch itself does on devices that do not exist: the collectives it issues, the bytes it holds."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn import functional
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from tests.runtime.cases import Case
from tests.runtime.parallel import DTYPES, build_parallel
from tests.runtime.reference import Transformer

Collective = tuple[str, int]  # its kind, and the bytes of the tensor that it makes or takes whole

_KINDS = {
    "all_reduce": ("all_reduce", 0),
    "all_gather_into_tensor": ("all_gather", 1),
    "reduce_scatter_tensor": ("reduce_scatter", 0),
    "_allgather_base_": ("all_gather", 0),
    "_reduce_scatter_base_": ("reduce_scatter", 1),
}


class Recorder(TorchDispatchMode):
    """Notes every collective with its bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Collective] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(each, DTensor) for each in types):
            return NotImplemented  # what it does inside is what counts
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if "c10d" in func.namespace and name in _KINDS:
            kind, place = _KINDS[name]
            whole = result if kind == "all_gather" and place else args[place]
            self.found.append((kind, whole.nbytes))
        return result


@contextmanager
def fake_mesh(case: Case) -> Iterator[dict[str, DeviceMesh]]:
    """The axes of a mesh in a group of processes of which only this one exists."""
    dist.init_process_group("fake", rank=0, world_size=case.dp * case.tp, store=FakeStore())
    try:
        mesh = init_device_mesh("cpu", (case.dp, case.tp), mesh_dim_names=("dp", "tp"))
        yield {"dp": mesh["dp"], "tp": mesh["tp"]}
    finally:
        dist.destroy_process_group()


@contextmanager
def real_meshes() -> Iterator[None]:
    """Lets meshes be joined under FakeTensorMode, where the tensors that number their ranks must be real."""
    join = DeviceMesh._concatenate

    def joined(meshes: list[DeviceMesh]) -> DeviceMesh:
        with unset_fake_temporarily():
            return join(meshes)

    with patch.object(DeviceMesh, "_concatenate", joined):
        yield


def _step(case: Case, model: Transformer, tokens: torch.Tensor, positions: torch.Tensor) -> None:
    """One forward and one backward; the loss is fp32 and split over the vocabulary like the logits."""
    with loss_parallel() if case.tp > 1 else nullcontext():
        functional.cross_entropy(model(tokens, positions).flatten(0, 1).float(), tokens.flatten()).backward()


def _inputs(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.zeros(case.batch, case.seq, dtype=torch.long)
    return tokens, torch.arange(case.seq // case.tp if case.sp else case.seq)[None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The collectives of a step in order, and how many PyTorch's own mode counts."""

    collectives: tuple[Collective, ...]
    counted: int


def measure_collectives(case: Case) -> Measured:
    """The collectives that PyTorch issues for a step."""
    with fake_mesh(case) as axes:
        model = build_parallel(case, axes)
        inputs = _inputs(case)
        with CommDebugMode() as counter, Recorder() as recorder:
            _step(case, model, *inputs)
        return Measured(collectives=tuple(recorder.found), counted=counter.get_total_counts())


_CLASSES = {  # of the trackers, by our categories
    "weights": ("PARAM", "SHARDED_PARAM", "UNSHARDED_PARAM", "ALL_GATHER"),
    "gradients": ("GRAD", "SHARDED_GRAD", "UNSHARDED_GRAD", "REDUCE_SCATTER"),
    "activations": ("ACT", "TEMP"),
}


def _watch(tracker: MemTracker) -> dict[str, int]:
    """The most bytes of each category, and of all together, as a tracker goes on to see them."""
    most = dict.fromkeys((*_CLASSES, "all"), 0)
    update = tracker._update_peak_stats

    def updated(state: Any) -> None:
        update(state)
        held = {
            getattr(n, "name", ""): size
            for each in tracker._curr_mem_snap.values()
            for n, size in each.items()
        }
        now = {what: sum(held.get(name, 0) for name in names) for what, names in _CLASSES.items()}
        for what, size in {**now, "all": sum(now.values())}.items():
            most[what] = max(most[what], size)

    tracker._update_peak_stats = updated  # type: ignore[method-assign]
    return most


def measure_memory(case: Case) -> Mapping[str, int]:
    """The most bytes of each category, and of all at once, in a step that finds gradients of the one before.

    In its first step DTensor tries every operator on tensors of the whole shape to learn what its result is;
    trackers take those for memory. The second finds what was learnt, and is the one that counts.
    """
    with fake_mesh(case) as axes, FakeTensorMode(), real_meshes():
        model = build_parallel(case, axes)
        inputs = _inputs(case)
        tracker = FSDPMemTracker(model) if case.dp > 1 else MemTracker()
        if case.dp == 1:
            tracker.track_external(model)
        most = _watch(tracker)
        with tracker:
            _step(case, model, *inputs)
            tracker.reset_mod_stats()
            most.update(dict.fromkeys(most, 0))
            _step(case, model, *inputs)
        return most


def measure_loss(case: Case) -> float:
    """Bytes that the loss holds at its peak for each logit of this device: a constant of the software."""
    rows, columns = case.batch * case.seq, case.arch.vocab // case.tp
    with fake_mesh(case) as axes, FakeTensorMode():
        logits = torch.zeros(rows, columns, dtype=DTYPES[case.precision], requires_grad=True)
        targets = torch.zeros(rows, dtype=torch.long)
        tracker = MemTracker()
        tracker.track_external(logits)
        most = _watch(tracker)
        with tracker, loss_parallel() if case.tp > 1 else nullcontext():
            for _ in range(2):  # the second counts, as above
                most.update(dict.fromkeys(most, 0))
                whole = DTensor.from_local(logits, axes["tp"], [Shard(1)]) if case.tp > 1 else logits
                functional.cross_entropy((whole * 1).float(), targets).backward()
                logits.grad = None
        return most["activations"] / (rows * columns)


def measure_state(case: Case) -> Mapping[str, int]:
    """Bytes that a device keeps: of weights, of gradients, and (by hand) of Adam's two fp32 moments."""
    with fake_mesh(case) as axes, FakeTensorMode(), real_meshes():
        weights = list(build_parallel(case, axes).parameters())
        local = [each.to_local() if isinstance(each, DTensor) else each for each in weights]
        size = sum(each.nbytes for each in local)
        return {"weights": size, "gradients": size, "optimizer": 8 * sum(each.numel() for each in local)}
