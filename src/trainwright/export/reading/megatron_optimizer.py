"""The optimizer and the gradient dtype that Megatron-LM's flags state."""

from collections.abc import Iterator

from trainwright.export.reading.launch_flags import Flags
from trainwright.plan.strategy import Strategy

_NAMES = {"sgd": "sgd", "lion": "lion", "muon": "muon", "dist_muon": "muon"}
_MOMENTS = {
    "fp32": "precision-aware", "bf16": "precision-aware-bf16", "fp16": "precision-aware-bf16",
    "fp8": "precision-aware-fp8",
}  # fmt: skip


def read_optimizer(flags: Flags) -> str:
    """The optimizer by our name; nothing for plain Adam, and for one on the host, which computes in fp32."""
    name = flags.word("optimizer", "adam")
    if name != "adam" or not flags.has("use-precision-aware-optimizer"):
        return _NAMES.get(name, "")
    moments = {flags.word(each, "fp32") for each in ("exp-avg-dtype", "exp-avg-sq-dtype")}
    if flags.has("optimizer-cpu-offload") and moments == {"fp32"}:
        return ""
    widest = next((each for each in _MOMENTS if each in moments), "fp32")
    return _MOMENTS[widest]


def read_grad_dtype(flags: Flags) -> str:
    """The dtype of gradients where it is not Megatron's own: fp32 in bf16 training, 16 bits in fp16."""
    if flags.has("grad-reduce-in-bf16") or flags.word("megatron-fsdp-main-grads-dtype", "") == "bf16":
        return "bf16"
    return "fp32" if flags.has("accumulate-allreduce-grads-in-fp32") and flags.has("fp16") else ""


def optimizer_remarks(flags: Flags, strategy: Strategy) -> Iterator[str]:
    """What of the optimizer's dtypes is predicted as something else.

    Without sharded state 16-bit weights are predicted beside their quantized copies; with it they are not.
    """
    moments = [flags.word(each, "fp32") for each in ("exp-avg-dtype", "exp-avg-sq-dtype")]
    if moments[0] != moments[1]:
        yield f"Moments in {' and '.join(moments)} are predicted as both in the wider one."
    is_low = strategy.precision in ("fp8", "fp4") and strategy.zero >= 1
    if is_low and not (flags.has("fp8-param-gather") or flags.has("fp4-param-gather")):
        yield (
            "Not considered, and it matters: without --fp8-param-gather or --fp4-param-gather 16-bit weights "
            "are kept beside their quantized copies, about 2 bytes per parameter more."
        )
