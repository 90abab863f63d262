"""What a step of a draft takes beside its layers: moves between splits, and what state costs."""

import numpy as np

from trainwright.cost.network import level_links
from trainwright.cost.state import host_update_bytes_per_s
from trainwright.model.graph import dim_sizes, is_layer
from trainwright.program.network import Network
from trainwright.program.setting import Setting
from trainwright.search.blocks import Profile
from trainwright.search.cuts import Cut
from trainwright.search.skeletons import Skeleton

_DATA_EXPOSED = 0.5  # of the sum of gradients, as a guess for ranking


def move_seconds(setting: Setting, skeleton: Skeleton, first: int) -> float:
    """The time of taking a microbatch to another split before a layer, and its gradient back."""
    segments = [each for each in setting.graph.segments if is_layer(each.block)]
    owners = [each for each in segments for _ in range(each.count)]
    samples = skeleton.strategy.dp * skeleton.strategy.micro_batch
    sizes = dim_sizes(setting.graph, owners[first - 1], samples, setting.seq)
    size = sizes["batch"] * sizes["seq"] * sizes["hidden"] * setting.machine.element_bytes
    group = tuple(range(skeleton.row_devices))
    return 2.0 * _network(setting).seconds("all_to_all", group, float(size) / len(group))


def state_seconds(
    setting: Setting, skeleton: Skeleton, profile: Profile, cut: Cut, microbatches: int
) -> float:
    """A guess at what weights and gradients cost: their sum or gathers, and an update on the host."""
    if skeleton.strategy.zero == 3:
        data_s = microbatches * _gather_seconds(setting, skeleton, profile)
    else:
        data_s = _sum_seconds(setting, skeleton, profile, cut)
    on_host = skeleton.strategy.offload != "none"
    return data_s + (_host_seconds(setting, skeleton, profile) if on_host else 0.0)


def _sum_seconds(setting: Setting, skeleton: Skeleton, profile: Profile, cut: Cut) -> float:
    """The sum of gradients of the slowest stage, range by range."""
    stage = np.repeat(np.arange(len(cut.counts)), cut.counts)
    weights, network = profile.state_bytes["weights"], _network(setting)
    total = np.zeros(len(cut.counts))
    for first, end, strategy in skeleton.spans(len(stage)):
        group = tuple(range(0, skeleton.row_devices, strategy.tp))
        sums = np.bincount(stage[first:end], weights[first:end], minlength=len(total))
        if len(group) > 1:
            total += [network.seconds("all_reduce", group, float(each)) for each in sums]
    return _DATA_EXPOSED * float(total.max())


def _gather_seconds(setting: Setting, skeleton: Skeleton, profile: Profile) -> float:
    """What gathers and scatters of a microbatch add, as far as the stack does not hide them."""
    group = tuple(range(0, skeleton.row_devices, skeleton.strategy.tp))
    size, network = float(profile.state_bytes["weights"].sum()), _network(setting)
    moves = ("all_gather", "all_gather", "reduce_scatter")
    return (1.0 - setting.stack.dp_overlap) * sum(network.seconds(kind, group, size) for kind in moves)


def _host_seconds(setting: Setting, skeleton: Skeleton, profile: Profile) -> float:
    """An update on the host: its own traffic there, and the way there of gradients and back of weights."""
    link = setting.cluster.network.host_bytes_per_s * setting.efficiency.host_link
    copies = skeleton.row_devices / skeleton.strategy.tp
    shares = copies * skeleton.strategy.pp
    kept = {what: float(each.sum()) / shares for what, each in profile.state_bytes.items()}
    traffic = 2.0 * (kept["optimizer"] + kept["gradients"]) + kept["weights"]
    moved_s = (kept["gradients"] + kept["weights"]) / link
    return traffic / float(host_update_bytes_per_s(setting.cluster, setting.efficiency)) + moved_s


def _network(setting: Setting) -> Network:
    return Network(links=level_links(setting.cluster, setting.efficiency, setting.stack))
