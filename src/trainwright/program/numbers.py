"""What operators compute, in numbers: one meaning for whole tensors and for parts of them.

Of an operator that sums over a split dim each device gives a share of the result; a weight without that dim
(a bias) is added by the first device only. Dropout keeps everything. Routing to experts has no numbers here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from trainwright.errors import BadInput
from trainwright.model.graph import Op, Tensor
from trainwright.program.call import Back, Call, Gradients, results
from trainwright.program.labelled import Array, Part, contract, cut
from trainwright.program.numbers_attention import attention, attention_back

_TINY = 1e-6  # under the root of a norm


def forward(call: Call) -> tuple[Part, ...]:
    """The operator's results, or its shares of them."""
    return _rules(call.op)[0](call)


def backward(call: Call, gradients: Gradients) -> Back:
    """The gradients of the operator's inputs and weights, or its shares of them."""
    return _rules(call.op)[1](call, gradients)


def linear(op: Op) -> bool:
    """Whether an element-wise operator only scales and adds, so that its backward reads nothing again."""
    return not {tensor.name for tensor in op.inputs} & {tensor.name for tensor in op.saved}


def _main(op: Op) -> list[Tensor]:
    """Of a matmul, the weight of each result."""
    return [weight for weight in op.weights if set(op.contracted) <= set(weight.dims)]


def _bias(op: Op, index: int) -> Tensor | None:
    """The bias of a result: named as its weight is, or the only one."""
    main = _main(op)
    others = [weight for weight in op.weights if weight not in main]
    stem = main[index].name.removesuffix(".weight")
    for weight in others:
        if weight.name == f"{stem}.bias" or len(main) == 1:
            return weight
    return None


def _matmul(call: Call) -> tuple[Part, ...]:
    found = []
    for index, tensor in enumerate(results(call.op)):
        weight = call.weights[_main(call.op)[index].name]
        result = contract([call.given(), weight], tensor.dims)
        bias = _bias(call.op, index)
        if bias is not None and call.adds.get(bias.name, True):
            result = _plus(result, call.weights[bias.name])
        found.append(result)
    return tuple(found)


def _plus(result: Part, addend: Part) -> Part:
    ones = Part(values=np.ones_like(result.values), at=result.at)
    return replace(result, values=result.values + contract([ones, addend], result.dims).values)


def _matmul_back(call: Call, gradients: Gradients) -> Back:
    source, weights = call.op.inputs[0], {}
    total: Part | None = None
    for index, gradient in enumerate(gradients):
        if gradient is None:
            continue
        main, bias = _main(call.op)[index], _bias(call.op, index)
        if main.name in call.weights:
            flows = contract([gradient, call.weights[main.name]], source.dims)
            flows = flows if call.counts(index) else replace(flows, values=0.0 * flows.values)
            total = flows if total is None else replace(total, values=total.values + flows.values)
        if call.inputs[0] is not None:
            weights[main.name] = contract([call.given(), gradient], main.dims)
        if bias is not None:
            weights[bias.name] = contract([gradient], bias.dims)
    return Back(inputs=(total,), weights=weights)


def _product(call: Call) -> tuple[Part, ...]:
    return (contract([call.given(0), call.given(1)], call.op.output.dims),)


def _product_back(call: Call, gradients: Gradients) -> Back:
    (gradient,) = gradients
    if gradient is None:
        return Back(inputs=(None, None))
    left, right = call.given(0), call.given(1)
    return Back(inputs=(contract([gradient, right], left.dims), contract([gradient, left], right.dims)))


def _turn(part: Part) -> Array:
    """What a rotation is here: a scale that depends on the position."""
    axis = part.dims.index("seq") if "seq" in part.dims else 0
    scale = 1.0 + 0.3 * np.cos(1.0 + part.at[part.dims[axis]])
    return np.asarray(scale.reshape([-1 if number == axis else 1 for number in range(part.values.ndim)]))


def _elementwise(call: Call) -> tuple[Part, ...]:
    op = call.op
    parts = [call.given(index) for index in range(len(op.inputs))]
    if op.extra_outputs:
        return tuple(
            replace(part, values=part.values * _turn(part) if linear(op) else np.tanh(part.values))
            for part in parts
        )
    if linear(op):
        total = contract([parts[0]], op.output.dims)
        for part in parts[1:]:
            total = _plus(total, part)
        return (total,)
    bent = replace(parts[0], values=np.tanh(parts[0].values))
    return (contract([bent, *parts[1:]], op.output.dims),)


def _elementwise_back(call: Call, gradients: Gradients) -> Back:
    op = call.op
    if op.extra_outputs:
        return Back(inputs=tuple(_pair_back(call, index, each) for index, each in enumerate(gradients)))
    (gradient,) = gradients
    if gradient is None:
        return Back(inputs=(None,) * len(op.inputs))
    if linear(op):
        return Back(inputs=tuple(contract([gradient], tensor.dims) for tensor in op.inputs))
    first, *others = (call.given(index) for index in range(len(op.inputs)))
    bent = np.tanh(first.values)
    slope, curve = replace(first, values=1.0 - bent**2), replace(first, values=bent)
    found = [contract([gradient, slope, *others], first.dims)]
    for index, other in enumerate(others):
        rest = [curve, *others[:index], *others[index + 1 :]]
        found.append(contract([gradient, *rest], other.dims))
    return Back(inputs=tuple(found))


def _pair_back(call: Call, index: int, gradient: Part | None) -> Part | None:
    if gradient is None:
        return None
    if linear(call.op):
        return replace(gradient, values=gradient.values * _turn(gradient))
    return replace(gradient, values=gradient.values * (1.0 - np.tanh(call.given(index).values) ** 2))


def _norm_weights(op: Op, index: int) -> tuple[Tensor, ...]:
    """Scale, and bias if there is one, of a result of a norm."""
    each = len(op.weights) // len(results(op))
    return op.weights[index * each : (index + 1) * each]


def _scaled(part: Part, dims: Sequence[str]) -> tuple[Array, Array, tuple[int, ...]]:
    """The values over their root mean square along `dims`, that root, and where those dims stand."""
    axes = tuple(part.dims.index(dim) for dim in dims)
    root = np.sqrt(np.mean(part.values**2, axis=axes, keepdims=True) + _TINY)
    return part.values / root, root, axes


def _norm(call: Call) -> tuple[Part, ...]:
    found = []
    for index in range(len(results(call.op))):
        part, (scale, *bias) = call.given(index), _norm_weights(call.op, index)
        values, _, _ = _scaled(part, scale.dims)
        result = contract([replace(part, values=values), call.weights[scale.name]], part.dims)
        found.append(_plus(result, call.weights[bias[0].name]) if bias else result)
    return tuple(found)


def _norm_back(call: Call, gradients: Gradients) -> Back:
    inputs: list[Part | None] = []
    weights: dict[str, Part] = {}
    for index, gradient in enumerate(gradients):
        if gradient is None:
            inputs.append(None)
            continue
        part, (scale, *bias) = call.given(index), _norm_weights(call.op, index)
        values, root, axes = _scaled(part, scale.dims)
        normal = replace(part, values=values)
        weights[scale.name] = contract([gradient, normal], scale.dims)
        weights |= {each.name: contract([gradient], each.dims) for each in bias}
        flows = contract([gradient, call.weights[scale.name]], part.dims).values
        mean = np.mean(flows * values, axis=axes, keepdims=True)
        inputs.append(replace(part, values=(flows - values * mean) / root))
    return Back(inputs=tuple(inputs), weights=weights)


def _gather(call: Call) -> tuple[Part, ...]:
    op = call.op
    tokens = call.given()
    at = {**tokens.at, **{dim: places for w in op.weights for dim, places in call.weights[w.name].at.items()}}
    at = {dim: at[dim] for dim in op.output.dims}
    total = Part(values=np.zeros([len(places) for places in at.values()]), at=at)
    for table in op.weights:
        if call.adds.get(table.name, True):
            chosen = contract([_chosen(tokens, table, call), call.weights[table.name]], op.output.dims)
            total = replace(total, values=total.values + chosen.values)
    return (total,)


def _chosen(tokens: Part, table: Tensor, call: Call) -> Part:
    """Ones where a token takes a row of a table: by its number, by its position, or the first row."""
    rows = call.weights[table.name].at[table.dims[0]]
    wanted = tokens.values
    if table.dims[0] == "positions":
        wanted = np.broadcast_to(tokens.at[tokens.dims[-1]], tokens.values.shape)
    elif table.dims[0] != "vocab":
        wanted = np.zeros_like(tokens.values)
    ones = (wanted[..., None] == rows).astype(float)
    return Part(values=ones, at={**tokens.at, table.dims[0]: rows})


def _gather_back(call: Call, gradients: Gradients) -> Back:
    (gradient,) = gradients
    if gradient is None:
        return Back(inputs=(None,))
    tokens = call.given()
    return Back(
        inputs=(None,),
        weights={
            table.name: contract([_chosen(tokens, table, call), gradient], table.dims)
            for table in call.op.weights
        },
    )


def loss_statistics(call: Call) -> Part:
    """Of every token: the sum of exponentials, and the logit of the right answer; both sum over parts."""
    logits = call.given()
    right = _right(call, logits)
    parts = [np.exp(logits.values).sum(axis=-1), (logits.values * right).sum(axis=-1)]
    at = {dim: logits.at[dim] for dim in logits.dims[:-1]}
    return Part(values=np.stack(parts, axis=-1), at={**at, "statistics": np.arange(2)})


def _right(call: Call, logits: Part) -> Array:
    assert call.targets is not None
    wanted = cut(call.targets, logits.at).values
    return np.asarray((wanted[..., None] == logits.at[logits.dims[-1]]).astype(float))


def _loss(call: Call) -> tuple[Part, ...]:
    statistics = call.statistics or loss_statistics(call)
    values = np.log(statistics.values[..., 0]) - statistics.values[..., 1]
    return (Part(values=values, at={dim: statistics.at[dim] for dim in statistics.dims[:-1]}),)


def _loss_back(call: Call, gradients: Gradients) -> Back:
    (gradient,) = gradients
    assert gradient is not None
    logits = call.given()
    statistics = call.statistics or loss_statistics(call)
    share = np.exp(logits.values) / statistics.values[..., :1]
    flows = (share - _right(call, logits)) * gradient.values[..., None]
    return Back(inputs=(replace(logits, values=flows),))


Rule = tuple[Callable[[Call], tuple[Part, ...]], Callable[[Call, Gradients], Back]]
_RULES: Mapping[str, Rule] = {
    "matmul": (_matmul, _matmul_back),
    "product": (_product, _product_back),
    "elementwise": (_elementwise, _elementwise_back),
    "norm": (_norm, _norm_back),
    "gather": (_gather, _gather_back),
    "attention": (attention, attention_back),
    "loss": (_loss, _loss_back),
}


def _rules(op: Op) -> Rule:
    plain = op.kind != "loss" or (op.contracted and not op.smoothing)
    if op.kind not in _RULES or not plain or (op.kind in ("elementwise", "attention") and op.weights):
        raise BadInput("op", op.name, f"such a {op.kind} has no numbers", "leave it out of the check")
    return _RULES[op.kind]
