"""What each module of recomputation runs again, and what a block then keeps."""

from pathlib import Path

import pytest

from trainwright.errors import UnknownName
from trainwright.model.build import build_graph
from trainwright.model.graph import Block, dim_sizes, elements, is_layer
from trainwright.model.load import load_model
from trainwright.model.totals import saved_tensors
from trainwright.plan.recompute_modules import (
    MODULES,
    NAMES,
    RECOMPUTES,
    SELECTIVE,
    canonical_recompute,
    is_subset,
    recomputed,
    selective_of,
)


def layer(model: str) -> Block:
    """The last layer of a model: one with experts, where some layers have none."""
    return [s.block for s in build_graph(load_model(model)).segments if is_layer(s.block)][-1]


def kept(model: str, recompute: str) -> set[str]:
    return {tensor.name for tensor in recomputed(layer(model), recompute).kept}


def freed(model: str, recompute: str) -> set[str]:
    return kept(model, "none") - kept(model, recompute)


class TestNames:
    def test_a_set_is_written_in_one_order(self) -> None:
        assert canonical_recompute("moe_act+norm") == "norm+moe_act"
        assert canonical_recompute("selective") == SELECTIVE

    def test_selective_is_the_score_matrices_where_attention_is_not_fused(self) -> None:
        assert selective_of("selective", unfused=True) == "core_attn"
        assert selective_of("mlp", unfused=True) == "mlp"

    @pytest.mark.parametrize("text", ["nrom", "norm+nrom", "full+norm", ""])
    def test_another_word_is_an_error(self, text: str) -> None:
        with pytest.raises(UnknownName, match="no such name"):
            canonical_recompute(text)

    def test_every_set_has_a_number_above_those_of_its_subsets(self) -> None:
        for number in (0, 1, 5, 1000, len(RECOMPUTES) - 2, len(RECOMPUTES) - 1):
            assert RECOMPUTES.index(RECOMPUTES[number]) == number
        assert len(RECOMPUTES) == 2 ** len(NAMES) + 1
        less, more = RECOMPUTES.index("norm+act"), RECOMPUTES.index("norm+act+moe")
        assert less < more < RECOMPUTES.index("full")
        assert is_subset(less, more)
        assert not is_subset(more, less)
        assert not is_subset(less, RECOMPUTES.index("full"))


class TestDense:
    MODEL = "llama3-8b"

    def test_none_keeps_what_backward_reads(self) -> None:
        assert kept(self.MODEL, "none") == {tensor.name for tensor in saved_tensors(layer(self.MODEL))}

    # Of the lists of an activation-recompute guide: what each label frees of a dense layer.
    @pytest.mark.parametrize(
        ("modules", "names"),
        [
            ("norm", {"norm1.out", "norm2.out"}),
            ("act", {"ffn.activation.out"}),
            ("mlp_up", {"ffn.gate.out", "ffn.up.out"}),
            ("mlp", {"ffn.gate.out", "ffn.up.out", "ffn.activation.out"}),
            ("core_attn", {"attention.core.statistics"}),
            ("context", {"attention.core.statistics", "attention.core.out"}),
            ("moe_act+moe+shared_experts+mla_up_proj", set()),
        ],
    )
    def test_a_module_frees_what_it_makes(self, modules: str, names: set[str]) -> None:
        assert freed(self.MODEL, modules) == names

    def test_the_input_of_what_runs_again_is_kept(self) -> None:
        assert {"norm2.out", "residual1"} <= kept(self.MODEL, "mlp")
        assert "norm2.out" not in kept(self.MODEL, "norm+mlp")  # it is made again from the residual stream

    # Queries are rotated after their norm in Qwen3, at once in Llama: what the product made is kept.
    @pytest.mark.parametrize("model", ["qwen3-0.6b", "llama3-8b"])
    def test_rotated_queries_are_made_again_from_what_the_product_made(self, model: str) -> None:
        assert {"attention.q", "attention.k", "attention.v"} <= kept(model, "selective")
        assert not {"attention.rope.q", "attention.rope.k", "norm1.out"} & kept(model, "selective")

    def test_what_backward_does_not_need_is_not_run_again(self) -> None:
        # Without its rotation, nothing reads the normed queries of Qwen3 again.
        again = recomputed(layer("qwen3-0.6b"), "norm")
        assert again.ops == {"norm1", "norm2"}

    def test_all_of_a_module_runs_again(self) -> None:
        assert recomputed(layer(self.MODEL), "mlp").ops == {"ffn.up", "ffn.activation", "ffn.down"}

    def test_dots_keep_every_second_matmul_and_what_attention_makes(self) -> None:
        # q, k, v, output, gate, up, down are counted one by one: k, output and up are made again.
        names = {"stream", "attention.q", "attention.v", "attention.core.out", "attention.core.statistics"}
        assert kept(self.MODEL, "dots") == names | {"ffn.gate.out"}
        again = recomputed(layer(self.MODEL), "dots")
        assert again.results["ffn.up"] == {"ffn.up.out"}
        assert again.results["attention.qkv"] == {"attention.k"}

    def test_without_the_output_projection_the_stream_behind_attention_is_made_again(self) -> None:
        # MaxText's save_qkv_proj: of a layer q, k, v and its input are kept.
        modules = "norm+rope+context+out_proj+residual+mlp_up+act"
        assert kept(self.MODEL, modules) == {"stream", "attention.q", "attention.k", "attention.v"}


class TestExperts:
    MODEL = "mixtral-8x7b"

    def test_moe_act_frees_the_activation_of_experts(self) -> None:
        assert freed(self.MODEL, "moe_act") == {"experts.activation.out"}
        assert freed(self.MODEL, "mlp+act") == set()

    def test_moe_keeps_its_input_alone(self) -> None:
        left = kept(self.MODEL, "moe") - kept(self.MODEL, "mlp")
        assert left == set()
        inside = {name for name in kept(self.MODEL, "moe") if name.startswith(("experts", "router", "disp"))}
        assert not inside
        assert "norm2.out" in kept(self.MODEL, "moe")

    def test_moe_runs_dispatch_and_combine_again(self) -> None:
        assert {"router", "dispatch", "experts.up", "combine"} <= recomputed(layer(self.MODEL), "moe").ops


class TestLatentAttention:
    MODEL = "deepseek-v3"

    def test_mla_up_proj_frees_expanded_queries_keys_and_values(self) -> None:
        names = freed(self.MODEL, "mla_up_proj")
        assert names == {"attention.rope.q", "attention.rope.k", "attention.v"}

    def test_it_frees_most_of_what_attention_keeps(self) -> None:
        graph = build_graph(load_model(self.MODEL))
        segment = [s for s in graph.segments if is_layer(s.block)][-1]
        sizes = dim_sizes(graph, segment, 1, 1)

        def per_token(recompute: str) -> int:
            return sum(elements(t, sizes) for t in recomputed(segment.block, recompute).kept)

        # q, k of 192 and v of 128 for each of 128 heads; the shared rotated key of 64 is kept instead.
        assert per_token("none") - per_token("mla_up_proj") == 128 * (192 + 192 + 128) - 64

    def test_shared_experts_are_a_module_of_their_own(self) -> None:
        names = freed(self.MODEL, "shared_experts")
        assert names == {"shared.gate.out", "shared.up.out", "shared.activation.out"}


@pytest.mark.parametrize("model", ["llama3-8b", "mixtral-8x7b", "deepseek-v3", "qwen3-0.6b"])
def test_more_modules_run_no_fewer_operators_again(model: str) -> None:
    sets = ["none", *NAMES, "norm+act", SELECTIVE, "norm+mlp", "norm+rope+qkv+context", "+".join(NAMES)]
    block = layer(model)
    for less in sets:
        for more in sets:
            if is_subset(RECOMPUTES.index(less), RECOMPUTES.index(more)):
                assert recomputed(block, less).ops <= recomputed(block, more).ops


def test_every_module_is_documented() -> None:
    text = (Path(__file__).parents[3] / "docs" / "recompute.md").read_text(encoding="utf-8")
    for module in MODULES:
        assert f"| `{module.name}` | {module.frees} | {module.costs} |" in text
