"""What our lowering and simulation say of the runs that PyTorch is asked for."""

from collections.abc import Mapping
from dataclasses import replace

from tests.builders import free_stack, perfect, round_cluster
from tests.runtime.cases import Case
from trainwright.cost.constants import Stack
from trainwright.model.build import build_graph
from trainwright.plan.expand import expand
from trainwright.plan.strategy import Strategy
from trainwright.program.lower import Program, lower
from trainwright.program.moves import LOCAL
from trainwright.program.setting import Setting
from trainwright.program.step import GRADIENT, Step, Value
from trainwright.program.table import CATEGORIES
from trainwright.program.tabulate import tabulate
from trainwright.program.values import held_bytes
from trainwright.simulate.memory import peaks
from trainwright.simulate.simulate import simulate

Collective = tuple[str, int]


def torch_stack(precision: str, logits_bytes: float) -> Stack:
    """PyTorch without a framework: gradients in the dtype of weights, gathered inputs kept, no margins."""
    width = {"bf16": 2.0, "fp32": 4.0}[precision]
    return free_stack(
        gradient_bytes=width, reduce_bytes=width, optimizer_bytes=8.0, gathered_inputs=1.0,
        logits_bytes=logits_bytes, dp_overlap=1.0,
    )


def build_program(case: Case, logits_bytes: float = 0.0) -> Program:
    """The case's strategy, lowered."""
    strategy = Strategy(
        dp=case.dp, tp=case.tp, sp=case.sp, zero=3 if case.dp > 1 else 0, micro_batch=case.batch,
        recompute="full" if case.full else "none", precision=case.precision,
    )  # fmt: skip
    graph = build_graph(case.arch)
    setting = Setting(
        graph=graph, cluster=round_cluster(case.dp * case.tp, node=1), stack=torch_stack(case.precision, logits_bytes),
        efficiency=perfect(), seq=case.seq, precision=case.precision,
    )  # fmt: skip
    return lower(setting, expand(strategy, graph, case.dp * case.batch))


def predict_collectives(case: Case) -> tuple[Collective, ...]:
    """Every collective of a step, with the bytes of the tensor that it makes or takes whole."""
    program = build_program(case)
    steps = program.routes[0].steps
    return tuple(
        (step.kind, _whole_bytes(program, step)) for step in steps if step.kind not in ("compute", "join", *LOCAL)
    )


def _whole_bytes(program: Program, step: Step) -> int:
    if step.move is None:
        return round(step.bytes)
    values = step.writes if step.kind == "all_gather" else step.reads
    return round(sum(_bytes(program, value) for value in values))


def _bytes(program: Program, value: Value) -> float:
    return held_bytes(program.routes[0].shapes[value.name.removeprefix(GRADIENT)], value.layout)


def predict_memory(case: Case, logits_bytes: float) -> Mapping[str, float]:
    """Bytes at the peak of a step, by category."""
    found = peaks(simulate(tabulate(build_program(case, logits_bytes))))
    return dict(zip(CATEGORIES, found.category_bytes[0].tolist(), strict=True))
