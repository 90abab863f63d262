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


def projections(
    name: str, region: Region, source: Tensor, outputs: tuple[Tensor, ...], biased: tuple[Tensor, ...] = ()
) -> Op:
    """`source` times one weight per output, summed over its last dim; those in `biased` have a bias too."""
    lead, summed = source.dims[:-1], source.dims[-1]
    widths = {output.name: output.dims[len(lead) :] for output in outputs}
    weights = tuple(tensor(f"{output.name}.weight", summed, *widths[output.name]) for output in outputs)
    biases = tuple(tensor(f"{output.name}.bias", *widths[output.name]) for output in biased)
    return Op(
        name=name,
        kind="matmul",
        region=region,
        inputs=(source,),
        output=outputs[0],
        extra_outputs=outputs[1:],
        weights=(*weights, *biases),
        contracted=(summed,),
        saved=(source,),
    )


def elementwise(name: str, region: Region, sources: tuple[Tensor, ...], output: Tensor, *, saves: bool) -> Op:
    """Element-wise work on `sources`; `saves` says whether its backward reads them again."""
    return Op(
        name=name,
        kind="elementwise",
        region=region,
        inputs=sources,
        output=output,
        saved=sources if saves else (),
    )
