"""What a user asks of a plan, read from the options."""

import argparse
from dataclasses import dataclass, replace
from math import log2

from trainwright.cli.knobs import LIMITED
from trainwright.cluster.load import load_cluster
from trainwright.cluster.types import Cluster, Device
from trainwright.cost.constants import AXES, Efficiency, Stack
from trainwright.cost.load import GENERIC, load_constants, stack_name
from trainwright.errors import BadInput, UnknownName
from trainwright.estimate.types import Job
from trainwright.model.architecture import Architecture
from trainwright.model.build import build_graph
from trainwright.model.graph import Graph, parameters
from trainwright.model.load import load_model
from trainwright.plan.strategy import OFFLOADS, PRECISIONS, SCHEDULES
from trainwright.report.summary import Terms
from trainwright.search.find import Question
from trainwright.search.rank import objective
from trainwright.search.space import knob_name, knob_value
from trainwright.units import parse_quantity, parse_whole, render_si

_TOKENS_PER_PARAMETER = 20.0  # Hoffmann et al. 2022
_MOST_BATCH = 100_000_000
_MOST_SEQ = 100_000_000
_STACKS = {"tpu": "maxtext", "trainium": GENERIC, "gaudi": GENERIC, "dojo": GENERIC}  # by family of device


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A question for the search, what its answer is priced with, and what was assumed on the way."""

    question: Question
    terms: Terms
    notes: tuple[str, ...]
    pareto: bool


def parse_request(options: argparse.Namespace) -> Request:
    """The request that the options describe."""
    architecture = load_model(options.model)
    graph = build_graph(architecture)
    cluster = _priced(load_cluster(options.cluster), options.price)
    constants = load_constants()
    stack = constants.stack(stack_name(options.stack or _default_stack(cluster)))
    efficiency = constants.efficiency(cluster.device)
    seq = parse_whole(options.seq, "--seq", most=_MOST_SEQ) if options.seq else architecture.max_seq
    batches, batch_note = _batches(options, graph, cluster, seq)
    tokens, token_note = _tokens(options.tokens, graph)
    objective(options.objective)
    job = Job(
        graph=graph, cluster=cluster, stack=stack, efficiency=efficiency, seq=seq, global_batch=batches[0]
    )
    title = _title(architecture, graph, cluster, stack)
    if not options.stack:
        title += f" (default for {cluster.device.family})"
    return Request(
        question=Question(
            job=job, batches=batches,
            fixed=_fixed(options, cluster.device, stack), most=_most(options, stack),
            objective=options.objective, top=parse_whole(options.top, "--top"),
        ),
        terms=Terms(
            interval=constants.interval(efficiency, stack), tokens=tokens,
            dollars_per_device_hour=cluster.device.price_per_hour,
        ),
        notes=(title, batch_note, token_note, *_basis(efficiency, stack, cluster), *_lacks(options, stack)),
        pareto=options.pareto,
    )  # fmt: skip


def default_batch_tokens(graph: Graph) -> int:
    """Tokens per step by model size: 4M at 10 billion parameters, growing with the root, 0.5M to 16M."""
    wanted = 4.0 * (parameters(graph) / 1e10) ** 0.5
    return int(2 ** min(max(round(log2(wanted)), -1), 4) * 2**20)


def _title(architecture: Architecture, graph: Graph, cluster: Cluster, stack: Stack) -> str:
    size = render_si(parameters(graph), "").replace(" G", " B").strip()
    where = f"{cluster.count} {cluster.device.name} ({cluster.network.name})"
    return f"{architecture.name} ({size} parameters) on {where}, {stack.name}"


def _batches(
    options: argparse.Namespace, graph: Graph, cluster: Cluster, seq: int
) -> tuple[tuple[int, ...], str]:
    if options.batch_range:
        first, colon, last = options.batch_range.partition(":")
        if not colon:
            raise BadInput("--batch-range", options.batch_range, "has no end", "write it like 512:4096")
        low, high = (parse_whole(each, "--batch-range", most=_MOST_BATCH) for each in (first, last))
        if low > high:
            raise BadInput(
                "--batch-range", options.batch_range, "starts above its end", "write it like 512:4096"
            )
        doubled = [low << power for power in range((high // low).bit_length()) if low << power <= high]
        batches = tuple(dict.fromkeys([*doubled, high]))
        listed = ", ".join(map(str, batches))
        return batches, f"Global batch: {listed} sequences of {seq} tokens, compared per token"
    if options.batch:
        batch, how = parse_whole(options.batch, "--batch", most=_MOST_BATCH), "as asked"
    elif options.batch_tokens:
        batch = round(parse_quantity(options.batch_tokens, "tokens", "--batch-tokens") / seq)
        how = f"{options.batch_tokens} tokens"
        if batch < 1:
            raise BadInput(
                "--batch-tokens", options.batch_tokens, f"is less than a sequence of {seq}", "ask for more"
            )
        if batch > _MOST_BATCH:
            rule = f"is more than {_MOST_BATCH:,} sequences of {seq}"
            raise BadInput("--batch-tokens", options.batch_tokens, rule, "ask for less")
    else:
        batch, how = _default_batch(graph, cluster, seq), "by model size, see --batch"
    size = render_si(batch * seq, "tokens")
    return (batch,), f"Global batch: {batch} sequences of {seq} tokens, {size} ({how})"


def _default_batch(graph: Graph, cluster: Cluster, seq: int) -> int:
    """Sequences per step: near the default tokens, the odd part of the device count times a power of two."""
    batch = max(default_batch_tokens(graph) // seq, 1)
    odd = cluster.count // (cluster.count & -cluster.count)
    return int(odd * 2 ** max(round(log2(batch / odd)), 0))


def _tokens(text: str | None, graph: Graph) -> tuple[float, str]:
    if text:
        tokens = parse_quantity(text, "tokens", "--tokens")
        if tokens == 0:
            raise BadInput("--tokens", text, "is zero", 'write it like "15T"')
        return tokens, f"Token budget: {render_si(tokens, 'tokens')}"
    tokens = _TOKENS_PER_PARAMETER * parameters(graph)
    return tokens, f"Token budget: {render_si(tokens, 'tokens')} (20 per parameter, see --tokens)"


def _basis(efficiency: Efficiency, stack: Stack, cluster: Cluster) -> tuple[str, ...]:
    """What the constants rest on."""
    device = cluster.device
    notes = []
    if not efficiency.runs:
        owner = {"device": "kernels of its own", "family": f"its family, {device.family},"}.get(
            efficiency.basis, "accelerators in general"
        )
        notes.append(
            f"No training runs on {device.name} were fitted: its efficiencies are those of {owner} "
            "and the range is wide."
        )
    else:
        own = device.name if efficiency.basis == "device" else f"{device.family} devices"
        notes.append(f"Fitted on {efficiency.runs:,} runs on {own}.")
    if stack.name == GENERIC:
        notes.append(
            "generic stands for unknown software: the median of the stacks that are known, and a wide range."
        )
    elif not stack.runs:
        notes.append(
            f"No runs of {stack.name} were fitted: it has the constants of {stack.basis}, and a wide range."
        )
    return tuple(notes)


def _lacks(options: argparse.Namespace, stack: Stack) -> tuple[str, ...]:
    """A note on what the stack cannot run and is therefore not searched, unless the user fixed that knob."""
    chosen = {text.partition("=")[0] for text in options.fix}
    missing = {
        "schedule": [name for name in SCHEDULES if name not in stack.schedules],
        "offload": [name for name in OFFLOADS if name not in stack.offloads],
        "zero": [str(stage) for stage in range(4) if stage not in stack.zeros],
    } | {axis: ["above 1"] for axis in AXES if axis not in stack.axes}
    words = [f"{knob} {', '.join(names)}" for knob, names in missing.items() if names and knob not in chosen]
    if not words:
        return ()
    return (f"{stack.name} lacks {'; '.join(words)}: not searched (see --fix, --stack generic).",)


def _default_stack(cluster: Cluster) -> str:
    """What most users of a family of devices run."""
    return _STACKS.get(cluster.device.family, "megatron-core")


def _default_precision(device: Device) -> str:
    return "bf16" if "bf16" in device.peak_flops_per_s else "fp16"


def _check_precision(name: str, device: Device) -> None:
    """Raise for a precision that the device would only imitate in a wider one."""
    if name not in PRECISIONS:
        raise UnknownName("--precision", name, PRECISIONS)
    rates = {"fp32" if dtype == "tf32" else dtype for dtype in device.peak_flops_per_s}
    if name not in rates:
        able = ", ".join(each for each in PRECISIONS if each in rates)
        raise BadInput("--precision", name, f"{device.name} has no rate for it", f"use one of {able}")


def _fixed(options: argparse.Namespace, device: Device, stack: Stack) -> dict[str, tuple[int, ...]]:
    """Knobs that are fixed: by the user, or by what the stack can run."""
    precision = options.precision or _default_precision(device)
    _check_precision(precision, device)
    fixed: dict[str, tuple[int, ...]] = {
        "precision": (PRECISIONS.index(precision),),
        "schedule": tuple(SCHEDULES.index(name) for name in stack.schedules),
        "offload": tuple(OFFLOADS.index(name) for name in stack.offloads),
        "zero": stack.zeros,
    } | {axis: (1,) for axis in AXES if axis not in stack.axes}
    for text in options.fix:
        knob, equals, value = text.partition("=")
        if not equals:
            raise BadInput("--fix", text, "has no value", "write it like pp=4")
        fixed[knob_name(knob)] = tuple(dict.fromkeys(knob_value(knob, each) for each in value.split(",")))
    for index in fixed["precision"]:
        _check_precision(PRECISIONS[index], device)
    return fixed


def _most(options: argparse.Namespace, stack: Stack) -> dict[str, int]:
    stated = {knob: getattr(options, f"max_{knob}") for knob in LIMITED}
    return {"vpp": stack.most_vpp} | {
        knob_name(knob): parse_whole(text, f"--max-{knob}") for knob, text in stated.items() if text
    }


def _priced(cluster: Cluster, price: str | None) -> Cluster:
    if not price:
        return cluster
    dollars = parse_quantity(price, "$/h", "--price")
    return replace(cluster, device=replace(cluster.device, price_per_hour=dollars))
