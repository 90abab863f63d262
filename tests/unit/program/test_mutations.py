"""Each published kind of bug, planted into a lowered program, is caught: by checker, numbers, or both."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from tests.laws.plans import setting_of, tiny
from trainwright.errors import BadInput
from trainwright.plan.expand import expand
from trainwright.plan.strategy import parse_strategy
from trainwright.program.check import check
from trainwright.program.compare import differences
from trainwright.program.interpret import build_program_data, interpret
from trainwright.program.layout import Mesh
from trainwright.program.lower import Program, lower
from trainwright.program.reference import reference
from trainwright.program.step import Step, Value

Steps = list[Step]
Is = Callable[[Step], bool]


def program_of(strategy: str, model: str = "llama") -> Program:
    """A small model under a strategy, two microbatches; it has nothing wrong with it."""
    graph = tiny(model)
    parsed = parse_strategy(strategy)
    program = lower(setting_of(graph), expand(parsed, graph, 2 * parsed.dp * parsed.micro_batch))
    assert caught_by(program) == {}
    return program


def planted(program: Program, mutate: Callable[[Steps], Iterable[Step]]) -> Program:
    """The program with other steps. Waits are dropped: they number steps that may have moved."""
    (route,) = program.routes
    steps = [step.set(after=(), after_weights=(), beside=()) for step in route.steps]
    return replace(program, routes=(replace(route, steps=tuple(mutate(steps))),))


def caught_by(program: Program) -> dict[str, str]:
    """Who finds fault with a program, and what is said."""
    found = {}
    try:
        check(program)
    except BadInput as error:
        found["checker"] = str(error)
    data = build_program_data(program)
    try:
        wrong = differences(interpret(program, data), reference(data))
    except (AssertionError, KeyError) as error:
        wrong = [str(error)]
    if wrong:
        found["numbers"] = wrong[0]
    return found


def first(steps: Steps, wanted: Is) -> int:
    return next(number for number, step in enumerate(steps) if wanted(step))


def at(steps: Steps, wanted: Is, *others: Step) -> Steps:
    """The steps with the first wanted one replaced."""
    number = first(steps, wanted)
    return [*steps[:number], *others, *steps[number + 1 :]]


def moved(kind: str, phase: str = "F") -> Is:
    return lambda step: step.kind == kind and step.phase == phase and step.move is not None


def op(name: str, phase: str = "F") -> Is:
    return lambda step: step.kind == "compute" and step.name == name and step.phase == phase


def reading(steps: Steps, old: Value, new: Value) -> Steps:
    """The steps with one value read instead of another."""
    return [step.set(reads=tuple(new if value == old else value for value in step.reads)) for step in steps]


def without(step: Step, device: int) -> Step:
    """The step on all of its devices but one."""
    rest = tuple(each for each in step.mesh.devices if each != device)
    return step.set(mesh=Mesh(devices=rest, axes=(len(rest),)))


def alone(step: Step, device: int, **changes: object) -> Step:
    """The step on one device, changed."""
    return step.set(mesh=Mesh(devices=(device,), axes=(1,)), **changes)


def test_a_missing_all_reduce_is_caught_by_the_checker_and_the_numbers() -> None:
    def mutate(steps: Steps) -> Steps:
        step = steps[first(steps, moved("all_reduce"))]
        return reading(at(steps, moved("all_reduce")), step.writes[0], step.reads[0])

    found = caught_by(planted(program_of("tp2"), mutate))
    assert "shares of a value that were not summed" in found["checker"]
    assert found.keys() == {"checker", "numbers"}


def test_an_extra_all_reduce_is_caught_by_the_checker_and_the_numbers() -> None:
    def mutate(steps: Steps) -> Steps:
        step = steps[first(steps, moved("all_reduce"))]
        assert step.move is not None
        whole = step.move.target
        again = step.set(reads=step.writes, move=replace(step.move, source=whole, target=whole))
        return at(steps, moved("all_reduce"), step, again)

    found = caught_by(planted(program_of("tp2"), mutate))
    assert "does not turn [whole] into [whole]" in found["checker"]
    assert found.keys() == {"checker", "numbers"}


def test_a_gather_in_place_of_a_sum_is_caught_by_the_checker_and_the_numbers() -> None:
    def mutate(steps: Steps) -> Steps:
        step = steps[first(steps, moved("all_reduce"))]
        assert step.move is not None
        wrong = step.set(kind="all_gather", move=replace(step.move, kind="all_gather"))
        return at(steps, moved("all_reduce"), wrong)

    found = caught_by(planted(program_of("tp2"), mutate))
    assert "all_gather of phase F on device" in found["checker"]
    assert found.keys() == {"checker", "numbers"}


def test_a_sum_over_the_wrong_devices_is_caught_by_the_checker_and_the_numbers() -> None:
    def sums_hidden_states(step: Step) -> bool:
        return moved("all_reduce")(step) and step.move is not None and len(step.move.source.mesh.axes) > 1

    def mutate(steps: Steps) -> Steps:
        step = steps[first(steps, sums_hidden_states)]
        assert step.move is not None
        (axis,) = step.move.axes
        other = step.set(move=replace(step.move, axes=(1 - axis,)))  # over samples, not over heads
        return at(steps, sums_hidden_states, other)

    found = caught_by(planted(program_of("dp2 tp2"), mutate))
    assert "does not turn" in found["checker"]
    assert found.keys() == {"checker", "numbers"}


def test_a_gradient_that_is_not_reduced_is_caught_by_the_checker_and_the_numbers() -> None:
    def mutate(steps: Steps) -> Steps:
        return [
            step.set(state=tuple(each for each in step.state if each != (1, "norm1.weight")))
            for step in steps
        ]

    found = caught_by(planted(program_of("dp2"), mutate))
    # Device 0 has its own gradient, once, where it should have those of both.
    assert "gradient of norm1.weight is the sum over [(0, 1)], not over [0, 1] once" in found["checker"]
    assert "wrong on device" in found["numbers"]


def test_a_wrong_rank_in_a_stage_move_is_caught_by_the_checker_and_the_numbers() -> None:
    def crosses(step: Step) -> bool:
        return (
            step.move is not None
            and step.phase == "F"
            and step.reads[0].layout.mesh.devices != step.writes[0].layout.mesh.devices
        )

    def mutate(steps: Steps) -> Steps:
        step = steps[first(steps, crosses)]
        assert step.move is not None
        mesh = step.move.target.mesh
        swapped = replace(step.move.target, mesh=replace(mesh, devices=mesh.devices[::-1]))
        return at(steps, crosses, step.set(move=replace(step.move, target=swapped)))

    found = caught_by(planted(program_of("dp2 pp2"), mutate))
    assert "on devices that do not hold their counterpart" in found["checker"]
    assert found.keys() == {"checker", "numbers"}


def test_a_rank_that_skips_an_op_is_caught_by_the_checker_and_the_numbers() -> None:
    def mutate(steps: Steps) -> Steps:
        wanted = op("layer.1/norm2")
        return at(steps, wanted, without(steps[first(steps, wanted)], 1))

    found = caught_by(planted(program_of("dp2"), mutate))
    assert 'on device 1 "layer.1/norm2": does not run alike on all of its devices' in found["checker"]
    assert "before it is made" in found["numbers"]


def test_a_rank_that_runs_another_op_is_caught_by_the_checker_and_the_numbers() -> None:
    def mutate(steps: Steps) -> Steps:
        wanted, other = op("layer.1/norm2"), steps[first(steps, op("layer.1/norm1"))]
        step = steps[first(steps, wanted)]
        return at(steps, wanted, without(step, 1), alone(step, 1, instance=other.instance, reads=other.reads))

    found = caught_by(planted(program_of("dp2"), mutate))
    assert "does not run alike on all of its devices" in found["checker"]
    assert found.keys() == {"checker", "numbers"}


def test_a_rank_that_works_on_another_part_is_caught_by_the_checker_and_the_numbers() -> None:
    def mutate(steps: Steps) -> Steps:
        wanted = op("layer.1/ffn.activation")
        step = steps[first(steps, wanted)]
        gate, up = step.reads
        return at(steps, wanted, without(step, 1), alone(step, 1, reads=(up, gate)[:1] * 2))

    found = caught_by(planted(program_of("tp2"), mutate))
    assert "does not run alike on all of its devices" in found["checker"]
    assert found.keys() == {"checker", "numbers"}


def test_a_rank_that_runs_an_op_twice_is_caught_by_the_checker_and_the_numbers() -> None:
    def mutate(steps: Steps) -> Steps:
        wanted = op("layer.1/norm2")
        step = steps[first(steps, wanted)]
        return at(steps, wanted, step, alone(step, 1))

    found = caught_by(planted(program_of("dp2"), mutate))
    assert "does not run alike on all of its devices" in found["checker"]
    assert found.keys() == {"checker", "numbers"}


def test_a_rank_that_scales_its_result_is_caught_by_the_checker_and_the_numbers() -> None:
    def mutate(steps: Steps) -> Steps:
        wanted = op("layer.1/ffn.down")
        step = steps[first(steps, wanted)]
        return at(steps, wanted, without(step, 1), alone(step, 1, scale=2.0))

    found = caught_by(planted(program_of("tp2"), mutate))
    assert "does not run alike on all of its devices" in found["checker"]
    assert found.keys() == {"checker", "numbers"}


def test_a_loss_that_forgets_its_microbatches_is_caught_by_the_checker_and_the_numbers() -> None:
    def mutate(steps: Steps) -> Steps:
        wanted = op("head/loss", "I")
        step = steps[first(steps, wanted)]
        return at(steps, wanted, step.set(scale=2.0 * step.scale))

    found = caught_by(planted(program_of("dp2"), mutate))
    assert "is scaled by" in found["checker"]
    assert "gradient of" in found["numbers"]


def test_a_mean_in_place_of_a_sum_of_gradients_is_caught_by_the_checker_and_the_numbers() -> None:
    def reduces(step: Step) -> bool:
        return step.phase == "S" and bool(step.state)

    def mutate(steps: Steps) -> Steps:
        return at(steps, reduces, steps[first(steps, reduces)].set(scale=0.5))

    found = caught_by(planted(program_of("dp2"), mutate))
    assert "scales by 0.5 what other copies do not" in found["checker"]
    assert "gradient of" in found["numbers"]


def test_gradients_that_are_reduced_before_the_last_microbatch_are_caught_by_the_checker() -> None:
    def mutate(steps: Steps) -> Steps:
        return [step.set(phase="W") if step.phase == "S" else step for step in steps]

    found = caught_by(planted(program_of("dp2"), mutate))
    assert "reduces gradients before the last microbatch" in found["checker"]


@pytest.mark.parametrize(
    "strategy", ["dp2 tp2 sp", "dp4 zero1", "dp4 zero3", "dp2 pp2 1f1b", "tp2 full", "cp2 ring"]
)
def test_a_program_without_a_bug_is_let_pass(strategy: str) -> None:
    program_of(strategy)
