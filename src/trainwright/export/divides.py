"""Whether a model's sizes divide by a strategy's degrees."""

from collections.abc import Iterator

from trainwright.errors import BadInput
from trainwright.model.architecture import Architecture
from trainwright.plan.strategy import Strategy


def check_divides(strategy: Strategy, arch: Architecture, seq: int | None) -> None:
    """Raise for the first degree that does not divide what it splits."""
    for knob, degree, thing, size in _splits(strategy, arch, seq):
        if degree > 1 and size % degree:
            raise BadInput(
                f'strategy "{strategy}": {knob}', degree, f"does not divide {thing} = {size} of {arch.name}",
                f"choose a {knob.split('·')[0]} that divides it",
            )  # fmt: skip
    if strategy.pp * strategy.vpp > arch.layers + 2:
        raise BadInput(
            f'strategy "{strategy}": pp·vpp', strategy.pp * strategy.vpp,
            f"is more than the {arch.layers} layers, embedding and head of {arch.name}", "lower pp or vpp",
        )  # fmt: skip


def _splits(strategy: Strategy, arch: Architecture, seq: int | None) -> Iterator[tuple[str, int, str, int]]:
    """Knob, degree, and the size that it splits, with its name."""
    tp, kv_heads = strategy.tp, arch.kv_heads
    yield "tp", tp, "heads", arch.heads
    yield "tp", min(tp, kv_heads) if tp % kv_heads == 0 else tp, "kv_heads", kv_heads
    yield "tp", tp, "ffn", arch.ffn
    yield "tp", tp, "shared_ffn", arch.shared_ffn
    yield "ep", strategy.ep, "experts", arch.experts
    yield "etp", strategy.etp, "expert_ffn", arch.expert_ffn
    if seq:
        yield "cp", strategy.cp, "sequence length", seq
