"""The rule of every operation: how it relates the axes of what it reads to those of what it makes."""

from collections.abc import Mapping

import torch
from torch.fx import Node

from trainwright.runtime.tracing import rules_products as products
from trainwright.runtime.tracing import rules_recurrences as recurrences
from trainwright.runtime.tracing import rules_shapes as shapes
from trainwright.runtime.tracing.axes import Reading, Rule
from trainwright.runtime.tracing.nodes import op_name


def rule_of(node: Node) -> Rule:
    """The rule of a node; of an operation that is not known, one that finds nothing."""
    name = op_name(node)
    if name in RULES:
        return RULES[name]
    tags = getattr(node.target, "tags", ())
    return shapes.pointwise if torch.Tag.pointwise in tags else _unknown


def _unknown(reading: Reading, node: Node) -> None:
    return None


_BY_RULE: tuple[tuple[Rule, str], ...] = (
    (shapes.given, "placeholder"),
    (shapes.item, "getitem"),
    (shapes.regrouped, "reshape flatten unflatten unsqueeze squeeze"),
    (shapes.permuted, "permute transpose t swapaxes movedim numpy_T"),
    (shapes.expanded, "expand"),
    (shapes.pointwise, "to detach dropout empty_like clamp type_as where fill overwrite arrange"),
    (shapes.pointwise, "__and__ __or__ __xor__ floor_divide loss_term"),
    (shapes.pointwise, "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy kl_div"),
    (shapes.pointwise, "binary_cross_entropy_with_logits soft_margin_loss poisson_nll_loss"),
    (shapes.reduced, "mean sum amax amin var std logsumexp any all prod argmax norm linalg_vector_norm"),
    (shapes.along, "softmax _softmax log_softmax cumsum cumprod flip roll"),
    (shapes.several_along, "topk sort max min"),
    (shapes.padded, "pad"),
    (shapes.scattered, "slice_scatter select_scatter"),
    (shapes.sliced, "slice select narrow"),
    (shapes.pieces, "split chunk split_with_sizes unbind unsafe_split"),
    (shapes.joined, "cat"),
    (products.looked_up, "embedding"),
    (products.normalized, "layer_norm rms_norm"),
    (products.of_samples, "group_norm"),
    (products.of_channels, "batch_norm"),
    (products.linear, "linear"),
    (products.added_product, "addmm"),
    (products.matrix_product, "mm bmm matmul"),
    (products.attention, "scaled_dot_product_attention"),
    (products.mixture, "mixture"),
    (products.loss, "cross_entropy_loss"),
    (products.answered, "cross_entropy_each likelihood_each"),
    (products.counted, "answer_counts"),
    (recurrences.recurrent, " ".join(recurrences.RECURRENCES)),
    (products.convolved, "conv1d conv2d conv3d"),
    (products.pooled, "max_pool1d max_pool2d avg_pool1d avg_pool2d adaptive_avg_pool1d adaptive_avg_pool2d"),
)
RULES: Mapping[str, Rule] = {name: rule for rule, names in _BY_RULE for name in names.split()}
