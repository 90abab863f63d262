"""Constructors of the operators that every part of a transformer is made of."""

from trainwright.model.architecture import Architecture
from trainwright.model.graph import Element, Op, Region, Tensor

TOKENS = ("batch", "seq")


def tensor(name: str, *dims: str, element: Element = "activation") -> Tensor:
    """A tensor over `dims`."""
    return Tensor(name=name, dims=dims, element=element)


def hidden_state(name: str) -> Tensor:
    """One hidden vector per token."""
    return tensor(name, *TOKENS, "hidden")


def norm(architecture: Architecture, name: str, source: Tensor, region: Region = "sequence") -> Op:
    """A norm over the last dim of `source`, which its backward reads again."""
    dim = source.dims[-1]
    return Op(
        name=name,
        kind="norm",
        region=region,
        inputs=(source,),
        output=tensor(f"{name}.out", *source.dims),
        weights=norm_weights(architecture, name, dim),
        saved=(source,),
    )


def norm_weights(architecture: Architecture, name: str, *dims: str) -> tuple[Tensor, ...]:
    """The scale of a norm, with its bias where the architecture has one."""
    scale = tensor(f"{name}.weight", *dims)
    return (scale, tensor(f"{name}.bias", *dims)) if architecture.norm_bias else (scale,)


def residual(architecture: Architecture, name: str, *sources: Tensor) -> Op:
    """The sum of the stream and its branches; with dropout it saves one mask per branch."""
    masks = tuple(tensor(f"{name}.mask.{s.name}", *s.dims, element="mask") for s in sources[1:])
    return Op(
        name=name,
        kind="elementwise",
        region="sequence",
        inputs=sources,
        output=hidden_state(name),
        saved=masks if architecture.dropout else (),
    )


def matmul(
    name: str, region: Region, source: Tensor, output: Tensor, weight_dims: tuple[str, ...], bias: bool
) -> Op:
    """`source` times one weight, summed over the weight's dims that `output` lacks."""
    contracted = tuple(dim for dim in weight_dims if dim not in output.dims)
    kept = tuple(dim for dim in weight_dims if dim in output.dims)
    weights = (tensor(f"{name}.weight", *weight_dims),)
    return Op(
        name=name,
        kind="matmul",
        region=region,
        inputs=(source,),
        output=output,
        weights=(*weights, tensor(f"{name}.bias", *kept)) if bias else weights,
        contracted=contracted,
        saved=(source,),
    )
