"""The mixture-of-experts part of a layer as operators: route, dispatch, experts, combine."""

from dataclasses import replace

from trainwright.model.architecture import Architecture
from trainwright.model.ffn import activation_op, ffn_ops, shared_gate_op, up_projection
from trainwright.model.graph import Op, Tensor
from trainwright.model.operators import TOKENS, hidden_state, matmul, tensor

_ROUTES = tensor("routes", *TOKENS, "top_k", element="index")
_PROBABILITIES = tensor("probabilities", *TOKENS, "top_k", element="fp32")


def moe_ops(architecture: Architecture, source: Tensor) -> tuple[Op, ...]:
    """Each token through `top_k` experts and the shared ones; the last op's output is the branch."""
    logits = tensor("router.out", *TOKENS, "experts", element="fp32")
    router = matmul("router", "sequence", source, logits, ("hidden", "experts"), architecture.router_bias)
    dispatch = _dispatch(source, logits)
    experts = _expert_ops(architecture, dispatch.output)
    shared = _shared_ops(architecture, source)
    combine = _combine(experts[-1].output, shared[-1].output if shared else None)
    return (router, dispatch, *experts, *shared, combine)


def _dispatch(source: Tensor, logits: Tensor) -> Op:
    """Copies of each token in expert order; its backward needs the routes and, for the router, the logits."""
    return Op(
        name="dispatch",
        kind="permute",
        region="experts",
        inputs=(source, logits),
        output=tensor("dispatched", *TOKENS, "top_k", "hidden"),
        saved=(_ROUTES, logits),
    )


def _expert_ops(arch: Architecture, source: Tensor) -> tuple[Op, ...]:
    """The experts' feed-forward; routing probabilities scale the activation, so no expert output is saved."""
    up = up_projection(arch, "experts", source, "expert_ffn", groups=("experts",))
    activation = activation_op("experts", up)
    activation = replace(
        activation,
        inputs=(*activation.inputs, _PROBABILITIES),
        saved=(*activation.saved, _PROBABILITIES),
    )
    biases = (tensor("experts.down.bias", "experts", "hidden"),) if arch.mlp_bias else ()
    down = Op(
        name="experts.down",
        kind="grouped_matmul",
        region="experts",
        inputs=(activation.output,),
        output=tensor("experts.down.out", *TOKENS, "top_k", "hidden"),
        weights=(tensor("experts.down.weight", "experts", "expert_ffn", "hidden"), *biases),
        contracted=("expert_ffn",),
        saved=(activation.output,),
    )
    return (up, activation, down)


def _shared_ops(arch: Architecture, source: Tensor) -> tuple[Op, ...]:
    if not arch.shared_ffn:
        return ()
    ops = ffn_ops(arch, source, "shared")
    return (*ops, shared_gate_op(source, ops[-1].output)) if arch.shared_gate else ops


def _combine(routed: Tensor, shared: Tensor | None) -> Op:
    """The sum over each token's experts, back in token order."""
    return Op(
        name="combine",
        kind="permute",
        region="experts",
        inputs=(routed,) if shared is None else (routed, shared),
        output=hidden_state("combine.out"),
        saved=(_ROUTES,),
    )
