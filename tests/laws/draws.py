"""What the laws are quantified over: jobs, and legal strategies of them."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from hypothesis import strategies as st

from trainwright.cluster.load import load_cluster
from trainwright.cost.constants import Efficiency, Stack
from trainwright.estimate.types import Job
from trainwright.model.build import build_graph
from trainwright.model.graph import Graph
from trainwright.model.load import load_model
from trainwright.plan.strategy import OFFLOADS, PRECISIONS, RECOMPUTES, Strategies
from trainwright.search.space import Space, legal_strategies

# Even and odd layer counts, tied and untied, grouped queries, experts, latent attention, an encoder-decoder.
MODELS = (
    "gpt2-xl",
    "llama3-8b",
    "mistral-7b",
    "llama3-405b",
    "mixtral-8x7b",
    "deepseek-v2-lite",
    "qwen2.5-0.5b",
    "t5-3b",
)
CLUSTERS = ("h100:16", "a100-40gb:64", "v100-16gb:8", "gb200:144", "tpu-v4:32", "h100:48@aws-p5", "mi300x:24")
BATCHES = (48, 96, 192, 1024)
# Knobs that are legal with all others, and the values that are drawn for them.
FREE = {
    "recompute": [RECOMPUTES.index(each) for each in ("none", "norm", "selective", "mlp", "moe", "full")],
    "offload": range(len(OFFLOADS)),
    "precision": (PRECISIONS.index("bf16"), PRECISIONS.index("fp8")),
    "overlap": (0, 1),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A job and a few of its legal strategies."""

    job: Job
    strategies: Strategies


@cache
def graph_of(model: str) -> Graph:
    return build_graph(load_model(model))


@cache
def legal(model: str, cluster: str, global_batch: int) -> Strategies:
    """Every legal combination of the knobs that constrain each other."""
    where = load_cluster(cluster)
    space = Space(
        graph=graph_of(model),
        devices=where.count,
        seq=2048,
        global_batch=global_batch,
        fixed={knob: (values[0],) for knob, values in FREE.items()},
        most={"micro_batch": 8, "vpp": 8},
    )
    return legal_strategies(space)


def shares(low: float = 0.0) -> st.SearchStrategy[float]:
    return st.sampled_from([low, 0.25, 0.5, 0.9, 1.0])


STACKS = st.builds(
    Stack,
    name=st.just("drawn"),
    attention=st.sampled_from(["flash", "unfused"]),
    pace=shares(0.5),
    traffic=st.sampled_from([1.0, 2.5]),
    op_s=st.sampled_from([0.0, 8e-6, 1e-4]),
    step_s=st.sampled_from([0.0, 0.1]),
    tp_overlap=shares(),
    dp_overlap=shares(),
    pp_overlap=shares(),
    ep_overlap=shares(),
    cp_overlap=shares(),
    interference=st.sampled_from([0.0, 0.15, 0.5]),
    gradient_bytes=st.sampled_from([2.0, 4.0]),
    reduce_bytes=st.sampled_from([2.0, 4.0]),
    fragmentation=st.sampled_from([0.0, 0.1]),
)


@st.composite
def questions(draw: st.DrawFn, count: int = 8) -> Question:
    """A job, with up to `count` of its legal strategies."""
    model, cluster, batch = (
        draw(st.sampled_from(MODELS)),
        draw(st.sampled_from(CLUSTERS)),
        draw(st.sampled_from(BATCHES)),
    )
    every = legal(model, cluster, batch)
    # Fractions, so that a failing example shrinks towards the first strategies, which are the plainest.
    places = draw(st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=count))
    chosen = every.take((np.array(places) * len(every)).astype(np.int64))
    size = len(places)
    free = {
        knob: np.array(draw(st.lists(st.sampled_from(values), min_size=size, max_size=size)), dtype=np.int64)
        for knob, values in FREE.items()
    }
    job = Job(
        graph=graph_of(model), cluster=load_cluster(cluster), stack=draw(STACKS), efficiency=Efficiency(),
        seq=2048, global_batch=batch,
    )  # fmt: skip
    return Question(job=job, strategies=replace(chosen, **free))


def with_links(job: Job, inner: float = 1.0, outer: float = 1.0, latency: float = 1.0) -> Job:
    """The job on a network whose bandwidths and latencies are multiplied."""
    levels = tuple(
        replace(
            level,
            bytes_per_s=level.bytes_per_s * (outer if index else inner),
            latency_s=level.latency_s * latency,
        )
        for index, level in enumerate(job.cluster.network.levels)
    )
    network = replace(job.cluster.network, levels=levels)
    return replace(job, cluster=replace(job.cluster, network=network))


def with_compute(job: Job, factor: float) -> Job:
    """The job on devices of a higher peak at every dtype."""
    device = job.cluster.device
    peaks = {dtype: rate * factor for dtype, rate in device.peak_flops_per_s.items()}
    return replace(job, cluster=replace(job.cluster, device=replace(device, peak_flops_per_s=peaks)))


def with_memory(job: Job, factor: float) -> Job:
    """The job on devices of a higher memory bandwidth."""
    device = job.cluster.device
    tiers = tuple(replace(tier, bytes_per_s=tier.bytes_per_s * factor) for tier in device.memory)
    return replace(job, cluster=replace(job.cluster, device=replace(device, memory=tiers)))


def with_host(job: Job, factor: float) -> Job:
    """The job on nodes with a faster way to the host's memory."""
    network = job.cluster.network
    return replace(
        job,
        cluster=replace(
            job.cluster, network=replace(network, host_bytes_per_s=factor * network.host_bytes_per_s)
        ),
    )
