"""Small graphs and legal plans of them, drawn at random."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

from hypothesis import strategies as st

from tests.builders import free_stack, perfect, round_cluster
from trainwright.model.architecture import Architecture
from trainwright.model.build import build_graph
from trainwright.model.ends import loss_op
from trainwright.model.flow import Instance, wire
from trainwright.model.graph import Block, Graph, Op, Segment, Tensor, dim_sizes
from trainwright.model.operators import matmul, projections
from trainwright.plan.plan import (
    STATE,
    Assign,
    Offload,
    Plan,
    Recompute,
    Replicate,
    Shard,
    Split,
    Stage,
    Stream,
    Transform,
)
from trainwright.plan.rules import LINKED, effect, split_dim, splittable
from trainwright.program.setting import Setting

TOKENS = ("batch", "seq")
SIZES = {"hidden": 4, "wide": 6, "vocab": 5}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A graph with a plan of it."""

    setting: Setting
    plan: Plan


@cache
def tiny(name: str) -> Graph:
    """A model with everything that its kind has, at widths of a few."""
    sizes = {"name": name, "layers": 2, "hidden": 8, "heads": 4, "ffn": 16, "vocab": 12}
    biases = {
        "norm": "layer",
        "positions": 8,
        "qkv_bias": True,
        "output_bias": True,
        "mlp_bias": True,
        "dropout": True,
    }
    kinds: Mapping[str, Mapping[str, object]] = {
        "gpt": biases,
        "tied": {"positions": 8, "tied": True, "head_bias": True},
        "llama": {"kv_heads": 2, "gated": True},
        "parallel": {
            "kv_heads": 1,
            "gated": True,
            "parallel_block": True,
            "shared_norm": True,
            "qk_norm": "head",
        },
    }
    return build_graph(Architecture(**sizes, **kinds[name]))  # type: ignore[arg-type]


TINY = ("gpt", "tied", "llama", "parallel")


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """A block of a few operators that read what came before, once or twice over, and a loss."""
    known = [Tensor(name="stream", dims=(*TOKENS, "hidden"))]
    ops: list[Op] = []
    for number in range(draw(st.integers(2, 5))):
        op = draw(_ops(f"op{number}", known))
        ops.append(op)
        known += [op.output, *op.extra_outputs]
    last = next(
        each for each in reversed(known) if each.dims[:2] == TOKENS and each.dims[-1] in ("hidden", "wide")
    )
    goal = Tensor(name="end.out", dims=(*TOKENS, "hidden"))
    if last.dims[-1] == "wide":
        ops.append(matmul("end", "sequence", last, goal, ("wide", "hidden"), False))
    else:
        ops.append(Op(name="end", kind="elementwise", region="sequence", inputs=(last,), output=goal))
    logits = Tensor(name="logits.out", dims=(*TOKENS, "vocab"))
    source = Tensor(name="stream", dims=(*TOKENS, "hidden"))
    head = (
        matmul("logits", "vocab", source, logits, ("hidden", "vocab"), draw(st.booleans())),
        loss_op(logits),
    )
    segments = (
        Segment(block=Block(name="layer", ops=tuple(ops)), count=draw(st.integers(1, 2))),
        Segment(block=Block(name="head", ops=head), count=1),
    )
    return Graph(name="drawn", segments=segments, sizes=SIZES)


@st.composite
def _ops(draw: st.DrawFn, name: str, known: Sequence[Tensor]) -> Op:
    plain = [each for each in known if each.dims[:2] == TOKENS and each.dims[-1] in ("hidden", "wide")]
    source = draw(st.sampled_from(plain))
    alike = [each for each in plain if each.dims == source.dims]
    kind = draw(st.sampled_from(("matmul", "pair", "bend", "sum", "norm", "scores")))
    width = source.dims[-1]
    out = Tensor(name=f"{name}.out", dims=source.dims)
    if kind == "matmul":
        other = "wide" if width == "hidden" else "hidden"
        return matmul(
            name, "sequence", source, replace(out, dims=(*TOKENS, other)), (width, other), draw(st.booleans())
        )
    if kind == "pair":
        other = "wide" if width == "hidden" else "hidden"
        outs = tuple(Tensor(name=f"{name}.{word}", dims=(*TOKENS, other)) for word in ("left", "right"))
        return projections(name, "sequence", source, outs, outs[:1])
    if kind == "norm":
        weight = Tensor(name=f"{name}.weight", dims=(width,))
        return Op(
            name=name,
            kind="norm",
            region="sequence",
            inputs=(source,),
            output=out,
            weights=(weight,),
            saved=(source,),
        )
    if kind == "scores":
        keys = draw(st.sampled_from(alike))
        turned = replace(keys, name=keys.name, dims=("batch", "seq_kv", width))
        if keys.name == source.name:  # one tensor under one name
            kind = "bend"
        else:
            return Op(
                name=name, kind="product", region="sequence", inputs=(source, turned), contracted=(width,),
                output=replace(out, dims=(*TOKENS, "seq_kv")), saved=(source, turned),
            )  # fmt: skip
    count = draw(st.integers(1, min(3, len(alike))))
    sources = tuple(dict.fromkeys([source, *draw(st.permutations(alike))]))[:count]
    return Op(name=name, kind="elementwise", region="sequence", inputs=sources, output=out,
              saved=sources if kind == "bend" else ())  # fmt: skip


def setting_of(graph: Graph, dp_overlap: float = 0.5, seq: int = 4) -> Setting:
    """Two nodes of four devices, with software that hides a part of what it reduces and gathers."""
    stack = free_stack(dp_overlap=dp_overlap, zero_overlap=0.25)
    return Setting(graph=graph, cluster=round_cluster(8, 4), stack=stack, efficiency=perfect(), seq=seq)


@st.composite
def cases(draw: st.DrawFn, graph: st.SearchStrategy[Graph], most: int = 8) -> Case:
    """A graph with a legal plan on up to `most` devices."""
    model = draw(graph)
    devices, batch = draw(st.integers(1, most)), draw(st.sampled_from((2, 4)))
    microbatches = draw(st.integers(1, 3))
    plan = draw(plans(model, devices, batch, microbatches, 4))
    return Case(setting=setting_of(model, dp_overlap=draw(st.sampled_from((0.0, 0.5, 1.0)))), plan=plan)


@st.composite
def plans(draw: st.DrawFn, graph: Graph, devices: int, batch: int, microbatches: int, seq: int) -> Plan:
    """A legal plan: any operator on any of a few groups of devices, split in any way."""
    instances = wire(graph)
    both = (
        devices % 2 == 0 and microbatches > 1 and not graph.tied and draw(st.booleans())
    )  # two routes, each on half of the devices
    names = draw(st.permutations(range(devices // 2 if both else devices)))
    groups = [tuple(names[: draw(st.integers(1, len(names)))]) for _ in range(draw(st.integers(1, 3)))]
    groups.append(tuple(names[len(names) - draw(st.integers(1, len(names))) :]))
    transforms: list[Transform] = []
    assigns: list[Assign] = []
    homes: dict[str, int] = {}
    wander = draw(st.booleans())
    serial = draw(_serials(instances)) if draw(st.booleans()) else {}
    for index, instance in enumerate(instances):
        sizes = dim_sizes(graph, graph.segments[instance.segment], batch, seq)
        home = (
            draw(st.integers(0, len(groups) - 1))
            if wander
            else homes.setdefault(instance.block, len(homes) % len(groups))
        )
        group = groups[home]
        tied = any(weight.name in graph.tied for weight in instance.op.weights)
        transforms += draw(_splits(instance, len(group), sizes, serial.get(index, ""), tied=tied))
        assigns.append(Assign(ops=instance.name, devices=group))
        if tied:
            assigns[-1] = replace(assigns[-1], devices=groups[0])
            transforms = [t for t in transforms if t.ops != instance.name]
            transforms += [Replicate(ops=instance.name, parts=len(groups[0]))] if len(groups[0]) > 1 else []
    transforms += draw(_state(instances))
    if any(each.op.kind == "attention" for each in instances) and draw(st.booleans()):
        transforms.append(Stream(ops="*/%attention"))
    again = draw(st.lists(st.sampled_from([each.name for each in instances]), max_size=6, unique=True))
    if draw(st.booleans()):
        again = [each.name for each in instances if each.block in {name.partition("/")[0] for name in again}]
    transforms += [Recompute(ops=name) for name in again]
    if draw(st.integers(0, 3)) == 0:
        transforms.append(Offload(ops=draw(st.sampled_from(instances)).name, what="activations"))
    if both:
        there = [
            replace(each, devices=tuple(d + devices // 2 for d in each.devices), route=(1, 2))
            for each in assigns
        ]
        assigns = [*(replace(each, route=(0, 2)) for each in assigns), *there]
    blocks = list(dict.fromkeys(each.block for each in instances))
    stages = tuple(Stage(ops=name) for name in blocks) if draw(st.booleans()) else ()
    return Plan(
        name="drawn", devices=devices, batch=batch, microbatches=microbatches, transforms=tuple(transforms),
        assigns=tuple(assigns), stages=stages,
    )  # fmt: skip


@st.composite
def _serials(draw: st.DrawFn, instances: Sequence[Instance]) -> dict[int, str]:
    """A run of operators that are co-split along one dim, each of which has it."""
    first = draw(st.integers(0, len(instances) - 1))
    dims = splittable(instances[first].op)
    if not dims:
        return {}
    dim = draw(st.sampled_from(dims))
    found = {}
    for index in range(first, min(first + draw(st.integers(1, 8)), len(instances))):
        if _has_parts(instances[index].op, dim):
            found[index] = dim
        elif draw(st.booleans()):
            break
    return found


def _has_parts(op: Op, dim: str) -> bool:
    """Whether serial parts along a dim are parts of every result, or of all sums."""
    made = [split_dim(op, each, dim) is not None for each in (op.output, *op.extra_outputs)]
    return dim in splittable(op) and (all(made) or effect(op, dim) == "sums")


@st.composite
def _splits(
    draw: st.DrawFn, instance: Instance, parts: int, sizes: Mapping[str, int], serial: str, *, tied: bool
) -> list[Transform]:
    """Splits of one operator into as many parts as it has devices, and perhaps serial ones besides."""
    found: list[Transform] = []
    left = {dim: sizes[dim] for dim in splittable(instance.op)}
    rest = parts
    linked = {
        dim: min([left[dim], *(sizes[each] for each in LINKED.get(dim, ()) if each in sizes)]) for dim in left
    }
    if serial and linked[serial] % 2 == 0 and not tied:
        found.append(Split(ops=instance.name, dim=serial, parts=2, serial=True))
        left[serial] //= 2
        linked[serial] //= 2
    while rest > 1:
        part = draw(st.sampled_from([n for n in range(2, rest + 1) if rest % n == 0]))
        dims = [dim for dim, size in left.items() if size % part == 0]
        uneven = [
            dim
            for dim, size in left.items()
            if size == sizes[dim] > part and dim != serial and dim not in LINKED
        ]
        how = draw(
            st.sampled_from(
                (*(("split", dim) for dim in dims), *(("uneven", dim) for dim in uneven), ("copy", ""))
            )
        )
        if how[0] == "copy":
            found.append(Replicate(ops=instance.name, parts=part))
        elif how[0] == "split":
            found.append(Split(ops=instance.name, dim=how[1], parts=part))
            left[how[1]] //= part
        else:
            ends = sorted(
                draw(
                    st.lists(
                        st.integers(1, sizes[how[1]] - 1), min_size=part - 1, max_size=part - 1, unique=True
                    )
                )
            )
            ends = [0, *ends, sizes[how[1]]]
            given = tuple(b - a for a, b in pairwise(ends))
            found.append(Split(ops=instance.name, dim=how[1], parts=part, sizes=given))
            left.pop(how[1])
        rest //= part
    return found


@st.composite
def _state(draw: st.DrawFn, instances: Sequence[Instance]) -> list[Transform]:
    """Sharded state of some blocks, or of all: of the optimizer, and perhaps more."""
    level = draw(st.integers(0, 3))
    blocks = list(dict.fromkeys(each.block for each in instances))
    chosen = draw(st.sampled_from(("*", *blocks)))
    ranks = draw(st.sampled_from((0, 2)))
    return [Shard(ops=chosen, what=what, ranks=ranks) for what in STATE[::-1][:level]]
