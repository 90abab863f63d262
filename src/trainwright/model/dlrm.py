"""A recommender (DLRM) as a graph: looked-up tables, two MLPs, the interaction of features between them."""

from itertools import pairwise

from trainwright.errors import BadInput
from trainwright.model.architecture import Architecture
from trainwright.model.ends import loss_op
from trainwright.model.graph import Block, Graph, Op, Segment, Tensor
from trainwright.model.operators import elementwise, matmul, tensor

TABLE_ROWS = "table_rows"  # dims along which tables may be split, besides their width
TABLES = "tables"
WIDTH = "hidden"


def is_recommender(graph: Graph) -> bool:
    """Whether a model looks rows up in tables: it is planned in other terms than layers."""
    return TABLES in graph.sizes


def check_layers(graph: Graph) -> None:
    """Raise for a recommender, where strategies of layers are meant."""
    if is_recommender(graph):
        raise BadInput(
            "model", graph.name, "has tables and no layers, so no strategy describes it",
            "ask trainwright plan, or simulate a table-parallel plan",
        )  # fmt: skip


def dlrm_graph(architecture: Architecture) -> Graph:
    """Tables, bottom MLP, interaction, top MLP, loss (Naumov et al. 2019, arXiv 1906.00091).

    Features are the rows of each table, summed over `pooling` of them, and the bottom MLP's result; the
    interaction is the dot product of each pair of features, beside that result. Tables are alike; MLPs have
    no biases.
    """
    arch = architecture
    bottom = [arch.dense_features, *arch.bottom]
    top = [_interactions(arch), *arch.top]
    return Graph(
        name=arch.name,
        segments=(
            Segment(block=_table_block(), count=1),
            *(_layer("bottom", index, sizes) for index, sizes in enumerate(pairwise(bottom))),
            Segment(block=_interaction_block(), count=1, sizes={"width_out": arch.hidden}),
            *(_layer("top", index, sizes) for index, sizes in enumerate(pairwise(top))),
            Segment(block=_loss_block(), count=1, sizes={"width_out": arch.top[-1]}),
        ),
        sizes=_sizes(arch),
        inputs=frozenset({"dense", "indices"}),
    )


def _interactions(arch: Architecture) -> int:
    """Numbers that the top MLP reads: one for each pair of features, and the bottom MLP's result."""
    features = arch.tables + 1
    return features * (features - 1) // 2 + arch.hidden


def _sizes(arch: Architecture) -> dict[str, int]:
    return {
        WIDTH: arch.hidden,
        TABLES: arch.tables,
        TABLE_ROWS: arch.table_rows,
        "pooling": arch.pooling,
        "features": arch.tables + 1,
        "features_kv": arch.tables + 1,
        "interactions": _interactions(arch),
    }


def _table_block() -> Block:
    """The rows of all tables that a sample asks for, those of a table summed."""
    indices = tensor("indices", "batch", TABLES, "pooling", element="index")
    lookup = Op(
        name="lookup",
        kind="gather",
        region="tables",
        inputs=(indices,),
        output=tensor("lookup.out", "batch", TABLES, WIDTH),
        weights=(tensor("lookup.weight", TABLES, TABLE_ROWS, WIDTH),),
        contracted=("pooling",),
        saved=(indices,),
        frozen=("pooling",),
        sparse=True,
    )
    return Block(name="embedding", ops=(lookup,), outputs=(("looked_up", "lookup.out"),))


def _layer(stack: str, index: int, sizes: tuple[int, int]) -> Segment:
    """One layer of an MLP; the first of the bottom reads the dense features, the last of the top is bare."""
    source = tensor("dense" if (stack, index) == ("bottom", 0) else "stream", "batch", "width_in")
    product = matmul("linear", "ffn", source, _wide("linear.out"), ("width_in", "width_out"), bias=False)
    relu = elementwise("activation", "ffn", (product.output,), _wide("activation.out"), saves=True)
    ops = (product,) if (stack, sizes[1]) == ("top", 1) else (product, relu)
    widths = {"width_in": sizes[0], "width_out": sizes[1]}
    return Segment(block=Block(name=stack, ops=ops), count=1, sizes=widths)


def _wide(name: str) -> Tensor:
    return tensor(name, "batch", "width_out")


def _interaction_block() -> Block:
    """Features side by side, the product of each with each, and what of it the top MLP reads."""
    looked_up = tensor("looked_up", "batch", TABLES, WIDTH)
    dense = tensor("stream", "batch", WIDTH)
    features = tensor("features.out", "batch", "features", WIDTH)
    join = Op(
        name="features", kind="elementwise", region="tables", inputs=(looked_up, dense), output=features,
        frozen=(TABLES, "features", WIDTH),
    )  # fmt: skip
    other = tensor("features.out", "batch", "features_kv", WIDTH)
    dots = Op(
        name="dots", kind="product", region="ffn", inputs=(features, other),
        output=tensor("dots.out", "batch", "features", "features_kv"), contracted=(WIDTH,),
        saved=(features, other), frozen=("features", "features_kv", WIDTH),
    )  # fmt: skip
    flat = Op(
        name="interaction", kind="elementwise", region="ffn", inputs=(dots.output, dense),
        output=tensor("interaction.out", "batch", "interactions"),
        frozen=("features", "features_kv", WIDTH, "interactions"),
    )  # fmt: skip
    return Block(name="interaction.end", ops=(join, dots, flat))


def _loss_block() -> Block:
    return Block(name="head", ops=(loss_op(tensor("stream", "batch", "width_out")),))
