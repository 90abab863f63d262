"""What our lowering and simulation say of the runs that PyTorch is asked for."""

from collections.abc import Mapping

from tests.builders import free_stack, perfect, round_cluster
from tests.runtime.cases import Case
from trainwright.cost.constants import Stack
from trainwright.model.build import build_graph
from trainwright.plan.expand import expand
from trainwright.plan.strategy import Strategy
from trainwright.program.losses import STATISTICS
from trainwright.program.lower import Program, lower
from trainwright.program.moves import WITHIN
from trainwright.program.setting import Setting
from trainwright.program.step import GRADIENT, Step, Value
from trainwright.program.table import CATEGORIES
from trainwright.program.tabulate import tabulate
from trainwright.program.values import held_bytes
from trainwright.simulate.memory import curve
from trainwright.simulate.simulate import simulate

Collective = tuple[str, int]
WIDTHS = {"bf16": 2, "fp32": 4}  # bytes per number


def torch_stack(precision: str, logits_bytes: float) -> Stack:
    """PyTorch without a framework: gradients in the dtype of weights, gathered inputs kept, no margins."""
    width = float(WIDTHS[precision])
    return free_stack(
        gradient_bytes=width,
        reduce_bytes=width,
        optimizer_bytes=8.0,
        gathered_inputs=1.0,
        logits_bytes=logits_bytes,
        dp_overlap=1.0,
    )


def build_program(case: Case, logits_bytes: float = 0.0) -> Program:
    """The case's strategy, lowered."""
    strategy = Strategy(
        dp=case.dp, tp=case.tp, sp=case.sp, zero=3 if case.dp > 1 else 0, micro_batch=case.batch,
        recompute="full" if case.full else "none", precision=case.precision,
    )  # fmt: skip
    graph = build_graph(case.arch)
    setting = Setting(
        graph=graph, cluster=round_cluster(case.dp * case.tp, node=1), efficiency=perfect(), seq=case.seq,
        stack=torch_stack(case.precision, logits_bytes), precision=case.precision,
    )  # fmt: skip
    return lower(setting, expand(strategy, graph, case.dp * case.batch))


def predict_collectives(case: Case) -> tuple[Collective, ...]:
    """Every collective of a step, with the bytes of the tensor that it makes or takes whole."""
    program = build_program(case)
    return tuple((step.kind, _whole_bytes(program, step)) for step in _sent(program))


def predict_as_issued(case: Case) -> tuple[Collective, ...]:
    """The same, where PyTorch does in several small collectives what we do in one.

    A loss over a split vocabulary sums the largest logit, the exponentials and the right logit by themselves,
    where we sum the last two at once. Under sequence parallelism FSDP sums the gradient of each replicated
    weight by itself, the position table's too, which the reference adds to parts of the sequence; without
    FSDP these sums are left to the optimizer.
    """
    program = build_program(case)
    width = case.arch.hidden * WIDTHS[case.precision]
    found: list[Collective] = []
    for step in _sent(program):
        size = _whole_bytes(program, step)
        if step.name.endswith(STATISTICS):
            found += [(step.kind, size // 2)] * 3
        elif step.name == "gradients/norms":
            found += [(step.kind, width)] * (size // width) if case.dp > 1 else []
        else:
            found.append((step.kind, size))
    if case.sp and case.dp > 1 and case.arch.positions:
        found.append(("all_reduce", case.arch.positions * width))
    return tuple(found)


def _sent(program: Program) -> tuple[Step, ...]:
    steps = program.routes[0].steps
    return tuple(step for step in steps if step.kind in WITHIN)


def _whole_bytes(program: Program, step: Step) -> int:
    if step.move is None:
        return round(step.bytes)
    values = step.writes if step.kind == "all_gather" else step.reads
    return round(sum(_bytes(program, value) for value in values))


def _bytes(program: Program, value: Value) -> float:
    return held_bytes(program.routes[0].shapes[value.name.removeprefix(GRADIENT)], value.layout)


def predict_memory(case: Case, logits_bytes: float) -> Mapping[str, float]:
    """The most bytes of each category, and of all but the optimizer at once, in a step."""
    held = curve(simulate(tabulate(build_program(case, logits_bytes))), 0).category_bytes
    wanted = {name: held[CATEGORIES.index(name)] for name in ("weights", "gradients", "activations")}
    wanted["all"] = sum(wanted.values())
    return {name: float(each.max()) for name, each in wanted.items()}


def predict_state(case: Case) -> Mapping[str, float]:
    """Bytes of weights, gradients and optimizer that a device keeps from step to step."""
    held = curve(simulate(tabulate(build_program(case))), 0).category_bytes[:, -1]
    return dict(zip(CATEGORIES[:3], held[:3].tolist(), strict=True))
