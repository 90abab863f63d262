"""`make fuzz`: mutated inputs for all readers, on several processes.

    python -m tests.fuzz.run --count 10000 --seed 7         all of them
    python -m tests.fuzz.run --seed 7 --only 1234           one of them again, with its traceback

Every case is determined by the seed and its number. Those that fail are kept under --keep: the
input, and what its reader has said.
"""

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.fuzz.case import MOST_CPU_S, CaseResult, choose, forbid_processes, limit_memory, run_case
from tests.fuzz.targets import FuzzTarget, build_targets, write_valid_files

_FORK = multiprocessing.get_context("fork")  # all that readers import is there already


@dataclass(slots=True, kw_only=True)
class FuzzReport:
    """What came of the cases so far."""

    results: list[CaseResult] = field(default_factory=list)
    faults: list[CaseResult] = field(default_factory=list)

    def add(self, result: CaseResult) -> None:
        """Count a case."""
        self.results.append(result)
        if result.fault:
            self.faults.append(result)

    def lines(self) -> list[str]:
        """By reader: cases, how many were accepted, refused and faulty, and the longest."""
        lines = [f"{'reader':<20} {'cases':>6} {'read':>6} {'refused':>8} {'faults':>7} {'longest CPU':>12}"]
        for name in sorted({each.target for each in self.results}):
            own = [each for each in self.results if each.target == name]
            codes, longest = Counter(each.code == 0 for each in own), max(each.cpu_s for each in own)
            faults = sum(bool(each.fault) for each in own)
            refused = len(own) - codes[True] - faults
            lines.append(
                f"{name:<20} {len(own):>6} {codes[True]:>6} {refused:>8} {faults:>7} {longest:>10.2f} s"
            )
        total = sum(each.cpu_s for each in self.results)
        peak = max((each.peak_bytes for each in self.results), default=0)
        lines.append(
            f"{len(self.results)} cases, {len(self.faults)} faults; {total:.0f} s of CPU time in all, "
            f"{max((each.cpu_s for each in self.results), default=0):.2f} s at most for one; "
            f"{peak / 2**30:.2f} GiB resident at most"
        )
        return lines


def fuzz(
    numbers: Sequence[int], seed: int, workers: int, folder: Path, *, progress: bool = False
) -> FuzzReport:
    """Run cases on some processes; one that dies counts as its case's fault, and another takes its place."""
    targets, report = ready_targets(folder), FuzzReport()
    todo = [list(numbers[at::workers])[::-1] for at in range(workers)]
    open_: dict[Connection, tuple[BaseProcess, list[int]]] = {}
    for own in todo:
        _start(open_, targets, seed, own, folder)
    started = time.monotonic()
    try:
        while open_:
            for pipe in wait(list(open_)):
                assert isinstance(pipe, Connection)
                _hear(open_, pipe, report, targets, seed, folder)
            if progress and len(report.results) % 20 == 0:
                done, spent = len(report.results), time.monotonic() - started
                print(
                    f"\r{done} of {len(numbers)}, {len(report.faults)} faults, {spent:.0f} s ",
                    end="",
                    file=sys.stderr,
                )
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
    finally:
        for process, _ in open_.values():
            process.kill()
            process.join()
    return report


def ready_targets(folder: Path) -> tuple[FuzzTarget, ...]:
    """All targets, after each has read its valid inputs once; raises if one is not accepted."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        kept, sys.stdout = sys.stdout, nowhere
        try:
            write_valid_files(folder)
        finally:
            sys.stdout = kept
    targets = build_targets(folder)
    for target in targets:
        for content in target.seeds:
            result = run_case(target, content, -1, folder)
            assert not result.fault, f"{target.name}: a valid input fails: {result.fault}"
    return targets


def _start(
    open_: dict[Connection, tuple[BaseProcess, list[int]]],
    targets: Sequence[FuzzTarget],
    seed: int,
    own: list[int],
    folder: Path,
) -> None:
    if own:
        here, there = _FORK.Pipe(duplex=False)
        process = _FORK.Process(target=_work, args=(there, targets, seed, own[::-1], folder), daemon=True)
        process.start()
        there.close()
        open_[here] = (process, own)


def _work(
    pipe: Connection, targets: Sequence[FuzzTarget], seed: int, numbers: list[int], folder: Path
) -> None:
    limit_memory()
    forbid_processes()
    for number in numbers:
        target, content = choose(targets, seed, number)
        pipe.send(run_case(target, content, number, folder))
    pipe.close()


def _hear(
    open_: dict[Connection, tuple[BaseProcess, list[int]]],
    pipe: Connection,
    report: FuzzReport,
    targets: Sequence[FuzzTarget],
    seed: int,
    folder: Path,
) -> None:
    process, own = open_[pipe]
    try:
        report.add(pipe.recv())
        own.pop()
    except EOFError:
        del open_[pipe]
        process.join()
        if own:
            number = own.pop()
            target, _ = choose(targets, seed, number)
            fault = f"the process has died with exit code {process.exitcode}"
            report.add(
                CaseResult(
                    number=number, target=target.name, code=-1, cpu_s=MOST_CPU_S, peak_bytes=0, fault=fault
                )
            )
            _start(open_, targets, seed, own, folder)


def main() -> int:
    """Run, keep what failed, report; exit code 1 if anything has."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=10_000, help="cases (default 10,000)")
    parser.add_argument("--first", type=int, default=0, help="number of the first (default 0)")
    parser.add_argument("--seed", type=int, default=7, help="of all chance (default 7)")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="processes (default: all cores)"
    )
    parser.add_argument("--only", type=int, nargs="+", help="numbers of cases to repeat")
    parser.add_argument(
        "--keep", type=Path, default=Path("report/fuzz"), help="where inputs that fail are kept"
    )
    options = parser.parse_args()
    numbers = options.only or list(range(options.first, options.first + options.count))
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        report = fuzz(numbers, options.seed, min(options.workers, len(numbers)), Path(name), progress=True)
        targets = build_targets(Path(name))
    for each in report.faults:
        _, content = choose(targets, options.seed, each.number)
        place = options.keep / f"{options.seed}-{each.number}-{each.target}"
        place.mkdir(parents=True, exist_ok=True)
        (place / "input").write_bytes(content)
        (place / "fault.txt").write_text(each.fault, encoding="utf-8", errors="replace")
    print("", file=sys.stderr)
    print("\n".join(report.lines()))
    for each in report.faults[:20]:
        print(f"case {each.number}, {each.target}: {each.fault.strip().splitlines()[-1][:200]}")
    return 1 if report.faults or len(report.results) < len(numbers) else 0


if __name__ == "__main__":
    raise SystemExit(main())
