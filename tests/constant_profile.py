"""A machine of constant rates, on which laws of arithmetic hold exactly."""

from trainwright.cluster.load import load_cluster
from trainwright.cost.profile import BaselineBlock, Collective, Kernel, Profile
from trainwright.study.layer_time import Baseline, build_baseline

FLOPS_PER_S, LINK_BYTES_PER_S = 100e12, 100e9
_NOTHING_S = 1e-25  # a byte, of work that is to take no time
_SIZES = (64.0, 512.0, 512.0, 128.0)
_ATTENTION_S = 2.0 * 64 * 512 * 512 * 128 / FLOPS_PER_S


def constant_profile(stream_s_per_byte: float = _NOTHING_S) -> Profile:
    """Products and attention at one rate, links at another, the rest at a third."""
    kernels = (
        Kernel(work="product.forward", sizes=(1e3, 1e3, 1e3), seconds=2e9 / FLOPS_PER_S, region=True),
        Kernel(work="unfused.forward", sizes=_SIZES, seconds=_ATTENTION_S, region=True),
        Kernel(work="unfused.backward", sizes=_SIZES, seconds=2.0 * _ATTENTION_S, region=True),
        *(
            Kernel(work=f"{name}.{way}", sizes=(1e6,), seconds=1e6 * stream_s_per_byte, region=True)
            for name in ("norm", "add", "gelu")
            for way in ("forward", "backward")
        ),
    )
    # Between two members an all-reduce sends each byte once, an all-to-all half of them.
    collectives = tuple(
        Collective(kind=kind, members=2, size_bytes=size, seconds=wire * size / LINK_BYTES_PER_S)
        for kind, wire in (("all_reduce", 1.0), ("all_to_all", 0.5))
        for size in (1.0, 2.0**50)
    )
    return Profile(
        dtype="fp16", software="none", measured="never", source="a test", kernels=kernels,
        collectives=collectives,
        block=BaselineBlock(batch=1, seq=512, hidden=1024, ffn=4096, heads=16, vocab=1000),
    )  # fmt: skip


def constant_baseline(stream_s_per_byte: float = _NOTHING_S) -> Baseline:
    """Its models of time, on a node of MI210."""
    return build_baseline(constant_profile(stream_s_per_byte), load_cluster("mi210:4"))
