"""What splitting an operator along a dim does."""

import pytest

from tests.laws.plans import tiny
from trainwright.model.flow import wire
from trainwright.model.graph import Op, Tensor
from trainwright.plan.rules import effect, split_dim, splittable

OPS = {each.op.name: each.op for name in ("gpt", "llama", "parallel") for each in wire(tiny(name))}


@pytest.mark.parametrize(
    ("op", "dim", "wanted"),
    [
        ("ffn.up", "ffn", "shards"),
        ("ffn.up", "hidden", "sums"),
        ("ffn.down", "ffn", "sums"),
        ("ffn.up", "vocab", "absent"),
        ("attention.core", "heads", "shards"),
        ("attention.core", "seq", "shards"),
        ("attention.core", "seq_kv", "frozen"),
        ("attention.core", "head_dim", "frozen"),
        ("norm1", "hidden", "frozen"),
        ("norm1", "seq", "shards"),
        ("attention.qk_norm", "heads", "shards"),
        ("attention.qk_norm", "head_dim", "frozen"),
        ("embedding", "vocab", "sums"),
        ("embedding", "hidden", "shards"),
        ("loss", "vocab", "sums"),
        ("residual1", "hidden", "shards"),
    ],
)
def test_a_dim_of_the_result_gives_shards_and_one_that_is_summed_over_gives_shares(
    op: str, dim: str, wanted: str
) -> None:
    assert effect(OPS[op], dim) == wanted


def test_a_norm_splits_along_all_but_what_it_norms_over() -> None:
    assert splittable(OPS["norm1"]) == ("batch", "seq")


def test_keys_are_split_with_the_heads_that_share_them() -> None:
    core: Op = OPS["attention.core"]
    queries, keys, _ = core.inputs
    assert split_dim(core, queries, "heads") == "heads"
    assert split_dim(core, keys, "heads") == "kv_heads"


def test_keys_stay_whole_where_queries_are_split() -> None:
    core: Op = OPS["attention.core"]
    assert split_dim(core, core.inputs[1], "seq") is None


def test_a_norm_over_all_key_heads_is_not_split_with_the_query_heads() -> None:
    keys = Tensor(name="k", dims=("batch", "seq", "kv_heads", "head_dim"))
    scale = Tensor(name="k_norm.weight", dims=("kv_heads", "head_dim"))
    norm = Op(
        name="k_norm", kind="norm", region="attention", inputs=(keys,), output=keys, weights=(scale,),
        frozen=("head_dim", "kv_heads"),
    )  # fmt: skip
    assert effect(norm, "heads") == "frozen"
    assert splittable(norm) == ("batch", "seq")
