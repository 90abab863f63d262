"""Every plan trains as one device does: losses, gradients and norms over five steps, on real processes."""

import os
from collections.abc import Callable

import pytest

from tests.runtime.equality import compare_named, losses
from tests.runtime.pool import Pool

TOLERANCE = 1e-5
THOROUGH = bool(os.environ.get("THOROUGH"))  # `make thorough`: more of the same
_ZOO = (
    "data-parallel", "zero-1", "zero-2", "zero-3", "fsdp", "tensor-parallel",
    "sequence-parallel", "context-parallel kind=ring", "context-parallel kind=allgather",
    "context-parallel kind=ulysses", "gpipe", "1f1b", "interleaved", "looped-bfs", "zb-h1", "zb-v",
    "dualpipe", "dualpipe-v", "chimera", "co-shard", "interlaced", "mixed", "uneven-stages",
    "recompute", "offload",
)  # fmt: skip
_WIDE = (
    "hsdp shard=2", "chimera pp=2 zero=2", "dualpipe", "dualpipe-v", "chimera", "zb-v", "interleaved",
    "mixed",
)  # fmt: skip
_OTHERS = {
    "tied": ("dp2 tp2 sp", "dp2 pp2 zero1", "dualpipe", "chimera", "interlaced"),
    "llama": (
        "dp2 tp2 sp",
        "dp2 cp2 ring",
        "pp2 tp2 zb full",
        "dp2 tp2 offload-activations1",
        "dp2 pp2 offload-activations1",
        "dp4 zero3 selective",
        "cp2 tp2 allgather",
        "dp2 tp2 sp recompute=norm+mlp",
        "dp2 cp2 ring recompute=core_attn",
        "dp2 tp2 sp recompute=dots",
        "dp2 pp2 recompute=norm+rope+context+out_proj+residual+act+mlp_up",
    ),
    "parallel": ("dp2 tp2", "dp4 zero3 full", "pp2 dp2 1f1b"),
    "latent": (
        "dp2 tp2",
        "dp2 pp2 full",
        "dp4 zero3",
        "dp2 tp2 sp recompute=norm+mla_up_proj",
        "dp4 recompute=dots",
    ),
    "experts": (
        "expert-parallel",
        "dp2 tp2 sp ep2",
        "tp2 dp2 ep2 etp2",
        "dp4 ep4 zero1",
        "dp4 ep2 zero3",
        "dp4 ep4 zero1 recompute=mlp_norm+moe_act",
        "dp2 tp2 sp ep2 recompute=moe",
    ),
    "shared experts": (
        "dp2 pp2 ep2 1f1b full",
        "dp2 tp2 sp ep2 selective",
        "dp4 ep2 recompute=norm+shared_experts",
        "dp2 tp2 ep2 recompute=dots",
    ),
    "translator": ("dp2 tp2", "dp2 pp2", "interlaced", "dp2 cp2 ring", "dp4 zero3 full"),
    "swin": ("dp4", "dp2 tp2", "dp2 pp2", "dp4 zero3", "co-shard chunks=2"),
    "evoformer": ("dp4", "dp2 tp2", "3f1b", "dp4 zero3 full"),
}


def _check(pool: Pool, model: str, text: str, devices: int) -> None:
    for rank, each in enumerate(pool.run(compare_named, model, text, devices)):
        worst = max(each.loss, each.gradient, each.norm)
        # Swin's norms behind its branches make rounding large: one process differs from itself by as much.
        assert worst < (1e-4 if model == "swin" else TOLERANCE), f"process {rank}: {each}"


@pytest.mark.parametrize("text", [*_ZOO, "per-layer layers=0-1:dp2,2-:tp2"])
def test_a_plan_of_the_zoo_trains_as_one_device_does(pool: Callable[[int], Pool], text: str) -> None:
    _check(pool(2), "middle", text, 2)


@pytest.mark.parametrize("text", (*_ZOO, *_WIDE[:2]) if THOROUGH else _WIDE)
def test_a_plan_of_the_zoo_trains_so_on_four_processes(pool: Callable[[int], Pool], text: str) -> None:
    _check(pool(4), "deep", text, 4)


@pytest.mark.parametrize(("model", "text"), [(model, text) for model in _OTHERS for text in _OTHERS[model]])
def test_every_family_of_models_trains_as_one_device_does(
    pool: Callable[[int], Pool], model: str, text: str
) -> None:
    _check(pool(4), model, text, 4)


_EIGHT = ("dp2 tp2 pp2 sp 1f1b", "dp2 tp2 cp2 ring zero1")
_MORE = (
    "chimera pp=4 zero=2", "hsdp shard=2", "hsdp shard=4", "pp4 tp2 zb", "per-layer layers=0-1:dp8,2-:tp4dp2",
)  # fmt: skip


@pytest.mark.parametrize("text", (*_EIGHT, *_ZOO, *_MORE) if THOROUGH else _EIGHT)
def test_eight_processes_train_as_one_device_does(pool: Callable[[int], Pool], text: str) -> None:
    _check(pool(8), "broad" if text in (*_ZOO, *_MORE) else "middle", text, 8)


@pytest.mark.skipif(not THOROUGH, reason="make thorough: the same on four processes is always run")
@pytest.mark.parametrize("devices", [2, 4, 8])
@pytest.mark.parametrize(("model", "text"), [("experts", "expert-parallel"), ("evoformer", "3f1b")])
def test_plans_for_other_models_train_so_on_every_count(
    pool: Callable[[int], Pool], model: str, text: str, devices: int
) -> None:
    _check(pool(devices), model, text, devices)


@pytest.mark.parametrize("text", ["dp2 mb2", "tp2 mb2 full", "dp2 zero3 mb2"])
def test_sixteen_bits_follow_thirty_two(pool: Callable[[int], Pool], text: str) -> None:
    for whole, half in pool(2).run(losses, "middle", text, 2):
        assert half != whole
        assert half == pytest.approx(whole, rel=2e-3)
        assert half[-1] < half[0]
