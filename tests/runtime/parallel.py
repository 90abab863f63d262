"""The reference modules on a mesh, by PyTorch's own tensor, sequence and fully sharded data parallelism."""

import torch
from torch import nn
from torch.distributed._composable import checkpoint
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from tests.runtime.cases import Case
from tests.runtime.reference import Transformer

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def build_parallel(case: Case, axes: dict[str, DeviceMesh]) -> Transformer:
    """The case's model, split over the axes `dp` and `tp` of a mesh."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(DTYPES[case.precision])
    model = Transformer(case.arch, case.seq)
    torch.set_default_dtype(usual)
    parallelize(model, case, axes)
    return model


def parallelize(model: Transformer, case: Case, axes: dict[str, DeviceMesh]) -> None:
    """Split a model over the axes of a mesh."""
    if case.tp > 1:
        parallelize_module(model, axes["tp"], dict(_end_styles(case)))
        for layer in model.layers:
            parallelize_module(layer, axes["tp"], dict(_layer_styles(case)))
    if case.arch.tied:
        model.head.logits.weight = model.embedding.tokens.weight
    if case.full:
        for layer in model.layers:
            checkpoint(layer)  # type: ignore[arg-type]
    if case.dp > 1:
        for unit in _units(model, tied=case.arch.tied):
            fully_shard(unit, mesh=axes["dp"], reshard_after_forward=True)


def _units(model: Transformer, *, tied: bool) -> list[nn.Module]:
    """What is gathered at once: blocks as ours are; ends that share a weight belong to the whole model."""
    ends = [] if tied else [model.embedding, model.head]
    return [*model.layers, *ends, model]


def _end_styles(case: Case) -> list[tuple[str, ParallelStyle]]:
    stream = Shard(1) if case.sp else Replicate()
    styles: list[tuple[str, ParallelStyle]] = [
        ("embedding.tokens", RowwiseParallel(input_layouts=Replicate(), output_layouts=stream)),
        (
            "head.logits",
            ColwiseParallel(input_layouts=stream, output_layouts=Shard(-1), use_local_output=False),
        ),
    ]
    if case.sp:
        styles.append(("head.norm", SequenceParallel()))
    if case.sp and case.arch.positions:
        styles.append(("embedding.positions", SequenceParallel(use_local_output=True)))
    return styles


def _layer_styles(case: Case) -> list[tuple[str, ParallelStyle]]:
    stream = Shard(1) if case.sp else Replicate()
    columns = (
        "attention.q",
        "attention.k",
        "attention.v",
        "ffn.up",
        *(["ffn.gate"] if case.arch.gated else []),
    )
    whole = (Replicate(), None, None), (Replicate(),)
    given = (stream, None, None), (stream,)
    styles: list[tuple[str, ParallelStyle]] = [(name, ColwiseParallel()) for name in columns]
    styles += [(name, RowwiseParallel(output_layouts=stream)) for name in ("attention.output", "ffn.down")]
    styles += [
        (name, PrepareModuleInput(input_layouts=had, desired_input_layouts=wanted))  # type: ignore[arg-type]
        for name, had, wanted in zip(("attention", "ffn"), given, whole, strict=True)
    ]
    return [*styles, *((name, SequenceParallel()) for name in ("norm1", "norm2") if case.sp)]
