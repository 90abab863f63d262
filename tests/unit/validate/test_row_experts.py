"""What a row tells of how its experts were run, and what that makes of its stack."""

import pytest

from trainwright.cost.constants import Stack
from trainwright.stack.capability import Capability
from trainwright.validate.row_experts import NATURAL_IMBALANCE, RowExperts, row_experts, with_experts

PARTIAL = ("attn", "moe_router", "moe_preprocess")


def stated(knobs: str, notes: str = "", **row: str) -> RowExperts:
    cells = {"experts": "64", "other_knobs": knobs, "notes": notes, **row}
    return row_experts(cells, Capability(), "2026-02", "qwen3-30b-a3b", "h100")


@pytest.mark.parametrize(
    ("knobs", "dispatcher", "is_overlapped", "graphs"),
    [
        ("", "alltoall", False, ()),
        ("dispatcher hybridep", "hybridep", False, ()),
        ("DeepEP; 1F1B A2A overlap", "deepep", True, ()),
        ("EP A2A overlap + delayed wgrad", "alltoall", True, ()),
        ("HybridEP, EP overlap OFF, CUDA graphs moe_router+moe_preprocess", "hybridep", False, PARTIAL[1:]),
        ("alltoall, EP overlap ON, no CUDA graphs", "alltoall", True, ()),
        ("HybridEP, A2A overlap, TE CUDA graphs, forced balance", "hybridep", True, PARTIAL),
        ("dispatcher hybridep; CUDA graphs full_iteration []", "hybridep", False, ("full_iteration",)),
    ],
)
def test_knobs_say_how_experts_were_run(
    knobs: str, dispatcher: str, is_overlapped: bool, graphs: tuple[str, ...]
) -> None:
    found = stated(knobs)
    assert (found.dispatcher, found.is_overlapped, found.cuda_graphs) == (dispatcher, is_overlapped, graphs)


def test_routing_is_balanced_where_a_row_says_so() -> None:
    assert stated("forced balance").imbalance == 1.0
    assert stated("", "force-balanced, token-dropless MoE").imbalance == 1.0
    assert stated("natural routing, dropless").imbalance == NATURAL_IMBALANCE
    assert stated("dispatcher hybridep").imbalance is None


def test_a_row_without_experts_leaves_its_stack_alone() -> None:
    stack = Stack(name="one", ep_dedupe=True, route_launches=10.0)
    assert with_experts(stack, stated("DeepEP", experts="")) is stack


def test_a_stack_runs_experts_as_the_row_states() -> None:
    stack = Stack(name="one", ep_dedupe=True, ep_overlap_share=0.7, route_launches=10.0, expert_imbalance=1.1)
    plain = with_experts(stack, stated("alltoall"))
    assert (plain.ep_dedupe, plain.ep_overlap, plain.cuda_graphs) == (False, 0.0, ())
    assert plain.stated_imbalance == 0.0
    fast = with_experts(stack, stated("HybridEP, A2A overlap, CUDA graphs full_iteration, forced balance"))
    assert (fast.ep_dedupe, fast.ep_overlap, fast.cuda_graphs) == (True, 0.7, ("full_iteration",))
    assert (fast.stated_imbalance, fast.expert_imbalance) == (1.0, 1.1)
    assert with_experts(stack, stated("", "TOKEN-DROP MoE")).route_launches == 0.0


def test_a_row_that_states_nothing_has_the_recipe_of_its_release() -> None:
    row = {"experts": "128", "tp": "1", "pp": "8", "ep": "32", "micro_batch": "1", "precision": "fp8"}
    described = Capability(recipes_since="2026-06")
    newer = row_experts(row, described, "2026-08", "qwen3-235b-a22b", "gb200")
    assert (newer.dispatcher, newer.is_overlapped, newer.cuda_graphs) == (
        "hybridep",
        True,
        ("full_iteration",),
    )
    older = row_experts(row, described, "2025-11", "qwen3-235b-a22b", "gb200")
    assert (older.dispatcher, older.is_overlapped, older.cuda_graphs) == ("alltoall", False, ())
    whole = row_experts(
        {**row, "other_knobs": "dispatcher hybridep", "recompute": "none"}, described, "2026-08",
        "qwen3-235b-a22b", "gb200",
    )  # fmt: skip
    assert (whole.dispatcher, whole.is_overlapped, whole.cuda_graphs) == ("hybridep", False, ())
