"""What a loss over a split vocabulary needs: statistics that its parts sum, and the weight of each answer."""

from functools import lru_cache

from trainwright.model.graph import Op, Tensor, elements
from trainwright.program.builder import Builder
from trainwright.program.layout import Layout

STATISTICS = ".statistics"  # after the name of a loss


@lru_cache(maxsize=256)
def statistics_of(op: Op) -> Tensor:
    """Of every answer: the sum of exponentials over the vocabulary, and the logit of the right one."""
    return Tensor(name=op.output.name + STATISTICS, dims=(*op.output.dims, "statistics"), element="fp32")


def splits_vocabulary(builder: Builder, index: int) -> bool:
    """Whether parts of an operator are a loss over parts of a vocabulary."""
    op, placed = builder.instances[index].op, builder.placed[index]
    return op.kind == "loss" and any(
        dim in op.contracted and size > 1
        for dim, size in (*zip(placed.dims, placed.mesh.axes, strict=True), placed.serial)
    )


def statistics_layout(builder: Builder, index: int) -> Layout:
    """How the statistics of a loss are written: shares of their value over the parts of the vocabulary."""
    return builder.layout(index, statistics_of(builder.instances[index].op), "statistics")


def answer_weight(builder: Builder, index: int) -> float:
    """What each answer of a loss counts in the loss of a step, which is the mean over its microbatches."""
    own = builder.instances[index]
    share = own.op.share
    answers = sum(
        elements(instance.op.output, builder.sizes(instance))
        for instance in (builder.instances if share is None else [own])
        if instance.op.kind == "loss"
    )
    return (1.0 if share is None else share) / max(answers * builder.plan.microbatches, 1)
