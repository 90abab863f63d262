"""A sample of `make fuzz` for every change, and the rules by which it judges."""

import random
import resource
import signal
from pathlib import Path

import pytest

from tests.fuzz.case import choose, run_case
from tests.fuzz.mutate import mutate
from tests.fuzz.run import fuzz, ready_targets
from tests.fuzz.targets import FuzzTarget


@pytest.mark.timeout(600)
def test_mutated_inputs_are_read_or_refused_in_one_line(tmp_path: Path) -> None:
    report = fuzz(range(250), 11, 1, tmp_path)
    assert len(report.results) == 250
    assert [(each.number, each.target, each.fault) for each in report.faults] == []


def test_every_seed_is_valid(tmp_path: Path) -> None:
    for target in ready_targets(tmp_path):
        codes = [run_case(target, content, -1, tmp_path).code for content in target.seeds]
        assert codes == [0] * len(codes), target.name


def test_a_case_is_the_same_for_the_same_seed_and_number(tmp_path: Path) -> None:
    targets = (target(lambda path, folder: 0), target(lambda path, folder: 1))
    assert choose(targets, 7, 3) == choose(targets, 7, 3)
    assert len({choose(targets, 7, number)[1] for number in range(20)}) > 10


@pytest.mark.parametrize("kind", ["json", "toml", "binary"])
def test_mutations_change_the_input(kind: str) -> None:
    content = b'{"layers": 4, "hidden": [256, 1.5]}'
    assert sum(mutate(content, kind, random.Random(seed)) != content for seed in range(50)) > 40


def test_an_exception_is_a_fault(tmp_path: Path) -> None:
    def broken(path: Path, folder: Path) -> int:
        raise KeyError(path.name)

    assert "KeyError" in run_case(target(broken), b"", 0, tmp_path).fault


def test_a_case_leaves_no_limits_behind(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_CPU), signal.getsignal(signal.SIGPROF)
    run_case(target(lambda path, folder: 0), b"", 0, tmp_path)
    assert (resource.getrlimit(resource.RLIMIT_CPU), signal.getsignal(signal.SIGPROF)) == before


def test_a_refusal_without_a_line_is_a_fault(tmp_path: Path) -> None:
    assert "not one line" in run_case(target(lambda path, folder: 1), b"", 0, tmp_path).fault


def target(call: object) -> FuzzTarget:
    return FuzzTarget(name="made", kind="json", file="x.json", seeds=(b'{"a": 1, "b": [2, 3]}',), call=call)  # type: ignore[arg-type]
