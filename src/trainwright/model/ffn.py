"""The feed-forward part of a layer as operators, dense or of shared experts."""

from typing import Literal

from trainwright.model.architecture import Architecture
from trainwright.model.graph import Kind, Op, Region, Tensor
from trainwright.model.operators import TOKENS, hidden_state, matmul, tensor


def ffn_ops(
    architecture: Architecture, source: Tensor, prefix: Literal["ffn", "shared"] = "ffn"
) -> tuple[Op, ...]:
    """Up (with the gate, if gated), activation, down; the last op's output is the branch."""
    width = {"ffn": "ffn", "shared": "shared_ffn"}[prefix]
    up = up_projection(architecture, prefix, source, width)
    activation = activation_op(prefix, up)
    down = matmul(
        f"{prefix}.down",
        prefix,
        activation.output,
        hidden_state(f"{prefix}.down.out"),
        (width, "hidden"),
        architecture.mlp_bias,
    )
    return (up, activation, down)


def up_projection(
    architecture: Architecture, prefix: Region, source: Tensor, width: str, groups: tuple[str, ...] = ()
) -> Op:
    """The matmul into `width`, twice over if gated; `groups` are the dims that select a weight."""
    branches = ("gate", "up") if architecture.gated else ("up",)
    outputs = [tensor(f"{prefix}.{branch}.out", *source.dims[:-1], width) for branch in branches]
    weights = [tensor(f"{prefix}.{branch}.weight", *groups, "hidden", width) for branch in branches]
    biases = [
        tensor(f"{prefix}.{branch}.bias", *groups, width) for branch in branches if architecture.mlp_bias
    ]
    kind: Kind = "grouped_matmul" if groups else "matmul"
    return Op(
        name=f"{prefix}.up",
        kind=kind,
        region=prefix,
        inputs=(source,),
        output=outputs[0],
        extra_outputs=tuple(outputs[1:]),
        weights=(*weights, *biases),
        contracted=("hidden",),
        saved=(source,),
    )


def activation_op(prefix: Region, up: Op) -> Op:
    """The nonlinearity after `up`, which reads everything `up` wrote, in both directions."""
    sources = (up.output, *up.extra_outputs)
    return Op(
        name=f"{prefix}.activation",
        kind="elementwise",
        region=prefix,
        inputs=sources,
        output=tensor(f"{prefix}.activation.out", *up.output.dims),
        saved=sources,
    )


def shared_gate_op(source: Tensor, branch: Tensor) -> Op:
    """A sigmoid of one logit per token that scales the shared experts' `branch` (Qwen2-MoE)."""
    return Op(
        name="shared.gate_scale",
        kind="elementwise",
        region="sequence",
        inputs=(branch, source),
        output=tensor("shared.out", *TOKENS, "hidden"),
        weights=(tensor("shared.gate_scale.weight", "hidden"),),
        saved=(branch, source),
    )
