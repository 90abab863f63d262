"""Plans of the zoo run through lowering and simulation on small models."""

from dataclasses import replace
from typing import Any

from tests.builders import free_stack, gpt, perfect, round_cluster, round_device
from trainwright.cluster.types import Cluster, MemoryTier
from trainwright.model.architecture import Architecture
from trainwright.model.build import build_graph
from trainwright.model.graph import Graph
from trainwright.model.load import load_model
from trainwright.plan.plan import Plan
from trainwright.plan.zoo import build_zoo, parse_zoo
from trainwright.program.lower import Program, lower
from trainwright.program.setting import Setting
from trainwright.program.tabulate import tabulate
from trainwright.simulate.simulate import simulate
from trainwright.simulate.timeline import Timeline


def experts() -> Graph:
    """Four layers of eight experts."""
    return gpt(layers=4, experts=8, top_k=2, expert_ffn=512)


def two_stacks() -> Graph:
    """An encoder and a decoder of four layers each, with one embedding."""
    return build_graph(
        Architecture(
            name="t5", kind="encoder_decoder", layers=4, encoder_layers=4, hidden=512, heads=8, vocab=8192,
            encoder_seq=512,
        )
    )  # fmt: skip


def fold() -> Graph:
    """An AlphaFold2 of eight layers, with three passes."""
    return build_graph(replace(load_model("alphafold2-87m"), layers=8))


def plan_of(text: str, graph: Graph, devices: int = 8, batch: int = 64) -> Plan:
    """The plan of a line of text."""
    name, parameters = parse_zoo(text)
    return build_zoo(name, graph, devices, batch, **parameters)


def program_of(
    plan: Plan, graph: Graph, *, cluster: Cluster | None = None, seq: int = 1024, **stack: Any
) -> Program:
    """The plan lowered for round devices and software that costs nothing."""
    setting = Setting(
        graph=graph, cluster=cluster or round_cluster(plan.devices), stack=free_stack(**stack),
        efficiency=perfect(), seq=seq, precision=plan.precision,
    )  # fmt: skip
    return lower(setting, plan)


def timeline_of(program: Program) -> Timeline:
    """The program simulated."""
    return simulate(tabulate(program))


def run(text: str, graph: Graph, devices: int = 8, batch: int = 64, **options: Any) -> Timeline:
    """A line of text simulated."""
    return timeline_of(program_of(plan_of(text, graph, devices, batch), graph, **options))


def free_cluster(count: int) -> Cluster:
    """Devices whose memory and links take no time."""
    memory = (MemoryTier(name="hbm", capacity_bytes=80e9, bytes_per_s=1e18),)
    cluster = round_cluster(count, device=round_device(memory=memory))
    levels = tuple(replace(each, bytes_per_s=1e21) for each in cluster.network.levels)
    return replace(cluster, network=replace(cluster.network, levels=levels))
