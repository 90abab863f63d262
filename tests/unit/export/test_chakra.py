"""Chakra traces say what the program does: they parse back, have no cycles, and their totals are its own."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("google.protobuf")

from tests.builders import free_stack, gpt, perfect, round_cluster
from tests.unit.export.chakra_replay import replay
from tests.unit.export.chakra_schema import attributes, read_trace
from trainwright.cluster.load import load_cluster
from trainwright.export.chakra.files import chakra_files, network_of
from trainwright.export.chakra.messages import sent_of
from trainwright.export.chakra.node import COLLECTIVES
from trainwright.model.totals import model_flops
from trainwright.plan.expand import expand
from trainwright.plan.strategy import parse_strategy
from trainwright.program.lower import Program, lower
from trainwright.program.setting import Setting
from trainwright.program.tabulate import tabulate
from trainwright.program.traffic import traffic
from trainwright.report.account import recomputed_flops
from trainwright.simulate.simulate import simulate


class Traced(NamedTuple):
    program: Program
    traces: dict[int, list[Any]]
    groups: dict[str, list[int]]


COMP, SEND, RECV, COLL = 4, 5, 6, 7
KINDS = {number: name for name, number in COLLECTIVES.items()}
PLANS = (
    "dp4 mb1 zero0 bf16", "dp4 mb1 zero1 bf16", "dp4 mb1 zero3 bf16", "dp8 mb1 zero3 hsdp4 full bf16",
    "dp2 tp2 mb1 zero1 bf16", "dp2 tp2 sp pp2 mb1 zero1 1f1b selective bf16",
    "dp1 pp2 vpp2 interleaved mb1 bf16", "dp2 pp2 mb1 zb offload-activations bf16", "dp1 cp4 mb1 zero0 bf16",
)  # fmt: skip


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Traced]:
    """The program and the traces of a plan, made once."""

    @cache
    def find(text: str) -> Traced:
        program, folder = program_of(text), tmp_path_factory.mktemp("chakra")
        traces = saved(program, folder)
        groups = json.loads((folder / "comm_group.json").read_text())
        return Traced(program=program, traces=traces, groups=groups)

    return find


@cache
def program_of(text: str, *, layers: int = 4, batch: int = 8) -> Program:
    strategy = parse_strategy(text)
    graph = gpt(layers=layers, hidden=512, heads=8, vocab=4096)
    setting = Setting(
        graph=graph, cluster=round_cluster(strategy.devices, node=4), stack=free_stack(),
        efficiency=perfect(), seq=256,
    )  # fmt: skip
    return lower(setting, expand(strategy, graph, batch))


def saved(program: Program, folder: Path, **options: bool) -> dict[int, list[Any]]:
    for name, content in chakra_files(program, **options):
        (folder / name).write_bytes(content)
    return {
        int(path.name.split(".")[1]): read_trace(path.read_bytes())[1] for path in folder.glob("trace.*.et")
    }


@pytest.mark.parametrize("text", PLANS)
def test_every_trace_parses_and_waits_only_for_what_is_before(
    traced: Callable[[str], Traced], text: str
) -> None:
    program, traces, _ = traced(text)
    assert sorted(traces) == list(range(program.plan.devices))
    for nodes in traces.values():
        seen: set[int] = set()
        for node in nodes:  # an order in which all that a node waits for is done: no cycle
            assert {*node.data_deps, *node.ctrl_deps} <= seen
            seen.add(node.id)
        assert len(seen) == len(nodes)


@pytest.mark.parametrize("text", PLANS)
def test_flops_add_up_to_those_of_the_model(traced: Callable[[str], Traced], text: str) -> None:
    program, traces, _ = traced(text)
    found = sum(
        attributes(node)["num_ops"] for nodes in traces.values() for node in nodes if node.type == COMP
    )
    wanted = model_flops(program.setting.graph, 8, 256) + recomputed_flops(program)
    assert found == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("text", PLANS)
def test_bytes_are_those_that_the_program_sends(traced: Callable[[str], Traced], text: str) -> None:
    """Of the rank that sends most: what its traffic says of a microbatch, for all of them, and of a step."""
    program, traces, groups = traced(text)
    found: dict[str, dict[int, float]] = {}
    for rank, nodes in traces.items():
        for node in nodes:
            about = attributes(node)
            if node.type == COLL:
                kind, ranks = KINDS[about["comm_type"]], groups[about["pg_name"]]
                assert rank in ranks
                sent = sent_of(kind, len(ranks), about["comm_size"])
            elif node.type == SEND:
                kind, sent = "send", about["comm_size"]
            else:
                continue
            of_kind = found.setdefault(f"{kind} {about['cause']}", {})
            of_kind[rank] = of_kind.get(rank, 0.0) + sent
    wanted: dict[str, float] = {}
    for each in traffic(program):
        if each.kind == "copy":
            continue
        kind = each.kind if each.kind in COLLECTIVES else "send"
        times = program.plan.microbatches if each.per == "microbatch" else 1
        name = f"{kind} {each.cause}"
        wanted[name] = wanted.get(name, 0.0) + times * each.sent_bytes
    assert {name: max(by_rank.values()) for name, by_rank in found.items()} == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("text", PLANS)
def test_what_is_sent_is_received(traced: Callable[[str], Traced], text: str) -> None:
    ends: dict[int, set[tuple[int, ...]]] = {SEND: set(), RECV: set()}
    joined: dict[str, dict[int, list[tuple[str, int, int]]]] = {}
    for rank, nodes in traced(text).traces.items():
        for node in nodes:
            about = attributes(node)
            if node.type in ends:
                key = tuple(about[name] for name in ("comm_src", "comm_dst", "comm_tag", "comm_size"))
                assert rank == key[0 if node.type == SEND else 1]
                assert key not in ends[node.type]
                ends[node.type].add(key)
            if node.type == COLL:
                said = (node.name, about["comm_type"], about["comm_size"])
                joined.setdefault(about["pg_name"], {}).setdefault(rank, []).append(said)
    assert ends[SEND] == ends[RECV]
    for by_rank in joined.values():  # all of a group say the same, in the same order
        assert len({tuple(each) for each in by_rank.values()}) == 1


@pytest.mark.parametrize("text", PLANS)
def test_played_together_by_their_files_alone_they_take_the_predicted_time(
    traced: Callable[[str], Traced], text: str
) -> None:
    """Nothing waits for ever, and a step is as long as simulated, but for durations of whole microseconds."""
    program, traces, groups = traced(text)
    left, micros = replay(traces, groups)
    assert left == 0
    assert micros == pytest.approx(simulate(tabulate(program)).step_s * 1e6, rel=0.08)


def test_memory_outside_the_device_is_there_for_those_who_copy_to_it() -> None:
    """ASTRA-sim ends at the first copy if there is none."""
    plain = dict(chakra_files(program_of("dp2 mb1 zero1")))
    assert json.loads(plain["memory.json"]) == {"memory-type": "NO_MEMORY_EXPANSION"}
    copied = dict(chakra_files(program_of("dp2 pp2 mb1 zb offload-activations bf16")))
    memory = json.loads(copied["memory.json"])
    assert memory["memory-type"] == "PER_NPU_MEMORY_EXPANSION"
    assert memory["remote-mem-bw"] == round_cluster(4, node=4).network.host_bytes_per_s / 1e9


def test_a_class_of_ranks_has_one_trace_and_a_map(tmp_path: Path) -> None:
    program = program_of("dp2 tp2 sp pp2 mb1 zero1 1f1b bf16")
    traces = saved(program, tmp_path, per_class=True)
    ranks = json.loads((tmp_path / "ranks.json").read_text())
    assert {int(rank) for rank in ranks} == set(range(8))
    assert {*ranks.values()} == {*traces} == {0, 4}


def test_the_file_says_its_version_and_what_it_is_of() -> None:
    files = dict(chakra_files(program_of("dp2 mb1 zero1")))
    about, nodes = read_trace(files["trace.1.et"])
    assert about.version == "0.0.4"
    assert {each.name: each.string_val for each in about.attr}["rank"] == "1"
    assert nodes[-1].name == "optimizer update S"


def test_the_network_has_a_dimension_for_each_level() -> None:
    found = network_of(load_cluster("h100:64"))
    assert found["npus_count"] == [8, 8]
    assert found["topology"] == ["Switch", "Switch"]
    torus = network_of(load_cluster("tpu-v4:64"))
    assert torus["topology"] == ["Ring"] * 3
    assert torus["npus_count"] == [4, 4, 4]
