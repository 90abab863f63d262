"""What the coupling foretells of subnetworks, beside what they lose: 60 cases, chosen before any was run.

    python benchmarks/coupling_cases.py [--keep FILE] [--quick]

Twenty networks, none of them the study's, are trained exactly and by three cuts into subnetworks each,
without whole steps. Two learning rates are tried with the first seed; the second seed is trained at the one
with the least loss on validation samples. Every other network is of the half that is judged on. `--keep` goes
on from what a file has; `--quick` is six networks, one rate and one seed.

A share is of what the units are worth to the exactly trained network: its loss without any, less its loss.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from trainwright.algorithm.corpus import VOCAB, draw_windows, read_corpus
from trainwright.algorithm.coupling import coupling, gate_worth
from trainwright.algorithm.digits import SIDE, draw_digits
from trainwright.algorithm.ist import Ist
from trainwright.algorithm.learning import Learning
from trainwright.algorithm.network import Batch, Mlp, Network, ResidualMlp
from trainwright.algorithm.registry import parse_algorithm
from trainwright.algorithm.teacher import build_task, judge, teach
from trainwright.algorithm.train import Course, Order, Task, train
from trainwright.algorithm.transformer import Transformer
from trainwright.study.rehearsals import all_cores

HURTS = 0.10  # a share; above it subnetworks are said to hurt. Fixed before any case was run
CLOSE = {"share": 0.02, "nats": 0.04}  # measured numbers this close, and a tenth of the larger, are no order
STEPS, BATCH, SEQ, WINDOWS = 300, 64, 24, 24
TEXT_STEPS = 130
Cut = tuple[int, float]  # workers, coverage
CUTS: dict[str, tuple[Cut, ...]] = {
    "A": ((4, 0.0), (4, 0.5), (4, 0.75)),
    "B": ((2, 0.0), (4, 0.5), (8, 0.0)),
    "C": ((2, 0.75), (4, 0.5), (8, 0.5)),
}
# What is learned (digits by noise; a teacher by inputs, classes, width), sizes, cuts. Sizes of a residual
# network are width, inner width, blocks; of a transformer layers, hidden, heads, FFN neurons.
CASES: tuple[tuple[str, tuple[float, ...], str, tuple[int, ...], str], ...] = (
    ("digits", (0.05,), "mlp", (128, 128), "A"), ("digits", (0.05,), "mlp", (64,), "B"),
    ("digits", (0.2,), "mlp", (256,), "C"), ("digits", (0.2,), "mlp", (64, 64), "A"),
    ("digits", (0.4,), "mlp", (32, 32), "B"), ("digits", (0.4,), "mlp", (64, 64, 64), "C"),
    ("teacher", (16, 4, 6), "mlp", (96,), "C"), ("teacher", (16, 4, 6), "mlp", (24, 24), "A"),
    ("teacher", (32, 10, 32), "mlp", (128, 128), "B"), ("teacher", (32, 10, 32), "mlp", (64,), "C"),
    ("digits", (0.2,), "residual", (32, 32, 8), "A"), ("digits", (0.4,), "residual", (32, 16, 16), "B"),
    ("teacher", (32, 10, 32), "residual", (32, 32, 8), "C"),
    ("teacher", (16, 4, 6), "residual", (16, 16, 8), "A"),
    ("text", (), "transformer", (1, 32, 4, 96), "B"), ("text", (), "transformer", (1, 32, 8, 64), "C"),
    ("text", (), "transformer", (2, 32, 2, 96), "A"), ("text", (), "transformer", (2, 32, 4, 64), "B"),
    ("text", (), "transformer", (2, 48, 8, 96), "C"), ("text", (), "transformer", (3, 32, 4, 48), "A"),
)  # fmt: skip
RATES = {"mlp": (6e-3, 1.2e-2), "residual": (3e-3, 6e-3), "transformer": (8e-3, 1.6e-2)}
QUICK = (1, 4, 7, 10, 14, 15)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A cut of a network, foretold and measured; `without` is the share of units left out."""

    network: str
    kind: str
    cut: str
    judged_on: bool
    without: float
    off_diagonal: float
    foretold_share: float
    worth: float
    measured_nats: float  # mean of the seeds
    seeds: tuple[float, ...]

    @property
    def measured_share(self) -> float:
        """Of what the units are worth."""
        return self.measured_nats / self.worth

    @property
    def foretold_nats(self) -> float:
        """Loss above exact training's."""
        return self.foretold_share * self.worth


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What is learned with a seed: batches of training, samples to choose and to judge by."""

    batch: Callable[[int], Batch]
    validation: Batch
    test: Batch
    samples: Batch  # of the training, that the coupling is asked on


def build_network(number: int) -> Network:
    task, given, kind, sizes, _ = CASES[number]
    if kind == "transformer":
        layers, hidden, heads, ffn = sizes
        return Transformer(vocab=VOCAB, seq=SEQ, layers=layers, hidden=hidden, heads=heads, ffn=ffn)
    inputs, classes = (SIDE * SIDE, 10) if task == "digits" else (int(given[0]), int(given[1]))
    if kind == "residual":
        width, inner, blocks = sizes
        return ResidualMlp(inputs=inputs, width=width, inner=inner, blocks=blocks, classes=classes)
    return Mlp(inputs=inputs, hidden=sizes, classes=classes)


def build_lesson(number: int, seed: int) -> Lesson:
    task, given, *_ = CASES[number]
    if task == "text":
        text = read_corpus()

        def windows(step: int) -> Batch:
            return draw_windows(text.train, SEQ, WINDOWS, 1_000_003 * seed + step)

        return Lesson(
            batch=windows, validation=draw_windows(text.validation, SEQ, 256, seed),
            test=draw_windows(text.test, SEQ, 256, seed),
            samples=_joined([windows(step) for step in range(3)]),
        )  # fmt: skip
    if task == "digits":
        data = draw_digits(train=4000, held=2000, seed=seed, noise=given[0])
    else:
        inputs, classes, width = (int(each) for each in given)
        data = teach(inputs, classes, 8000, seed=seed, width=width)
    batch = build_task(build_network(number), data.train, data.test, BATCH, seed).batch
    samples = _joined([batch(step) for step in range(8)])
    return Lesson(batch=batch, validation=data.validation, test=data.test, samples=samples)


def _joined(parts: Sequence[Batch]) -> Batch:
    return Batch(torch.cat([each.inputs for each in parts]), torch.cat([each.targets for each in parts]))


def trained(number: int, lesson: Lesson, algorithm: str, workers: int, rate: float, seed: int) -> Course:
    """A run, judged on the validation and the test samples."""
    network = build_network(number)
    steps = TEXT_STEPS if CASES[number][0] == "text" else STEPS
    learning = Learning(
        optimizer="adamw", rate=rate, clip=1.0, fused=True, share=lambda step: 1.0 - 0.9 * step / steps
    )
    order = Order(
        algorithm=parse_algorithm(algorithm), learning=learning, workers=workers, steps=steps, seed=seed
    )
    parts = {"validation": lesson.validation, "test": lesson.test}
    task = Task(
        network=network, batch=lesson.batch,
        judge=lambda values: {name: judge(network, values, part)["loss"] for name, part in parts.items()},
    )  # fmt: skip
    return train(task, order)


def tuned(number: int, algorithm: str, workers: int, quick: bool) -> list[Course]:
    """A run for each seed, at the rate that suits the first one best."""
    rates = RATES[CASES[number][2]][: 1 if quick else None]
    lesson = build_lesson(number, 0)
    tried = {rate: trained(number, lesson, algorithm, workers, rate, 0) for rate in rates}
    best = min(rates, key=lambda rate: tried[rate].last.judged["validation"])
    later = [
        trained(number, build_lesson(number, seed), algorithm, workers, best, seed)
        for seed in range(1, 1 if quick else 2)
    ]
    return [tried[best], *later]


def cases_of(number: int, quick: bool) -> list[dict[str, object]]:
    """A network and its cuts, as rows."""
    torch.set_num_threads(1)
    task, given, kind, sizes, letter = CASES[number]
    network, cuts = build_network(number), CUTS[letter]
    exact = tuned(number, "ddp", 1, quick)  # with more workers the mathematics is the same
    samples = build_lesson(number, 0).samples
    divided = [Ist(coverage=coverage).cut(network.anatomy, workers) for workers, coverage in cuts]
    foretold = coupling(network, exact[0].values, samples, divided)
    worth = gate_worth(network, exact[0].values, samples)
    rows: list[dict[str, object]] = []
    for (workers, coverage), told, cut in zip(cuts, foretold, divided, strict=True):
        found = tuned(number, f"ist every=20 coverage={coverage:g}", workers, quick)
        lost = [a.last.judged["test"] - b.last.judged["test"] for a, b in zip(found, exact, strict=True)]
        units = network.anatomy.units
        held = sum(cut.share(group) * count for group, count in units.items()) / sum(units.values())
        words = " ".join(f"{each:g}" for each in given)
        rows.append(
            asdict(
                Case(
                    network=f"{task} {words}: {kind} {'-'.join(map(str, sizes))}".replace(" :", ":"),
                    kind=task if kind == "mlp" else kind, cut=f"{workers} workers, {coverage:g}",
                    judged_on=bool(number % 2), without=1.0 - held, off_diagonal=told.off_diagonal,
                    foretold_share=told.relative, worth=worth, measured_nats=float(np.mean(lost)),
                    seeds=tuple(lost),
                )
            )
        )  # fmt: skip
    return rows


def run_cases(numbers: Sequence[int], quick: bool, keep: Path | None) -> list[Case]:
    """All rows, in the order of the list; what is kept is not run again."""
    found: dict[int, list[dict[str, object]]] = {}
    if keep and keep.exists():
        found = {int(number): rows for number, rows in json.loads(keep.read_text()).items()}
    start_s = time.perf_counter()
    with all_cores() as pool:
        # Those that take longest first.
        waiting = {
            pool.submit(cases_of, each, quick): each for each in reversed(numbers) if each not in found
        }
        for future in as_completed(waiting):
            found[waiting[future]] = future.result()
            if keep:
                keep.write_text(json.dumps(found))
            name = future.result()[0]["network"]
            print(
                f"{len(found)} of {len(numbers)}, {time.perf_counter() - start_s:.0f} s: {name}", flush=True
            )
    return [Case(**row) for number in numbers for row in found[number]]  # type: ignore[arg-type]


Estimate = Callable[[Case], float]
FORETOLD: dict[str, dict[str, Estimate]] = {
    "share": {"coupling": lambda each: each.foretold_share, "units left out": lambda each: each.without},
    "nats": {
        "coupling": lambda each: each.foretold_nats,
        "units left out": lambda each: each.without,
        "units left out x worth": lambda each: each.without * each.worth,
    },
}
MEASURED: dict[str, Estimate] = {
    "share": lambda each: each.measured_share,
    "nats": lambda each: each.measured_nats,
}
Pair = Callable[[Case, Case], bool]
PAIRS: dict[str, Pair] = {
    "all pairs": lambda a, b: True,
    "of one network": lambda a, b: a.network == b.network,
    "of two networks": lambda a, b: a.network != b.network,
    "of two networks, the same cut": lambda a, b: a.network != b.network and a.cut == b.cut,
    "a text and another": lambda a, b: (a.kind == "transformer") != (b.kind == "transformer"),
}


def in_order(
    cases: Sequence[Case], told: Estimate, seen: Estimate, close: float, counts: Pair
) -> tuple[float, int]:
    """Pairs that are in order, and pairs that count: what is foretold alike is half in order."""
    right, total = 0.0, 0
    for place, a in enumerate(cases):
        for b in cases[:place]:
            apart = seen(a) - seen(b)
            if counts(a, b) and abs(apart) > close + (
                0.1 * max(abs(seen(a)), abs(seen(b))) if close else 0.0
            ):
                said = told(a) - told(b)
                right += 0.5 if abs(said) < 1e-12 else float(said * apart > 0)
                total += 1
    return right, total


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's; equal numbers share their mean rank."""
    ranks = [
        np.array([(np.less(x, v).sum() + np.less_equal(x, v).sum()) / 2 for v in x]) for x in (one, other)
    ]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def right_verdicts(cases: Sequence[Case], told: Estimate, above: float) -> tuple[int, int, int, int]:
    """Hurts, and was foretold to; foretold alone; measured alone; neither."""
    pairs = [(told(each) > above, each.measured_share > HURTS) for each in cases]
    return (
        pairs.count((True, True)),
        pairs.count((True, False)),
        pairs.count((False, True)),
        pairs.count((False, False)),
    )


def best_threshold(cases: Sequence[Case], told: Estimate) -> float:
    """The one with most verdicts right, between two values that were foretold; of several the middle one."""
    values = sorted({told(each) for each in cases})
    tried = [(a + b) / 2 for a, b in pairwise(values)]

    def right(above: float) -> int:
        both, _, _, neither = right_verdicts(cases, told, above)
        return both + neither

    most = max(map(right, tried))
    best = [each for each in tried if right(each) == most]
    return best[len(best) // 2]


def tell_cases(cases: Sequence[Case]) -> None:
    print("\n| network | cut | half | worth | foretold share | measured | foretold nats | measured (seeds) |")
    print("|---" * 8 + "|")
    for each in cases:
        seeds, half = (
            ", ".join(f"{value:.3f}" for value in each.seeds),
            "judged" if each.judged_on else "chosen",
        )
        print(
            f"| {each.network} | {each.cut} | {half} on | {each.worth:.2f} "
            f"| {each.foretold_share:.1%} | {each.measured_share:.1%} | {each.foretold_nats:.3f} "
            f"| {each.measured_nats:.3f} ({seeds}) |"
        )


def tell_orders(halves: dict[str, Sequence[Case]]) -> None:
    for unit, close in CLOSE.items():
        print(f"\nPairs in order by {unit}; they count if measured more than {close:g} and a tenth apart:\n")
        print("| estimate | pairs | " + " | ".join(halves) + " |\n|---|---" + "|---" * len(halves) + "|")
        for name, told in FORETOLD[unit].items():
            for which, counts in PAIRS.items():
                found = [in_order(each, told, MEASURED[unit], close, counts) for each in halves.values()]
                shown = [f"{right / max(total, 1):.0%} of {total}" for right, total in found]
                print(f"| {name} | {which} | " + " | ".join(shown) + " |")
            every = [
                in_order(each, told, MEASURED[unit], 0.0, PAIRS["all pairs"]) for each in halves.values()
            ]
            shown = [f"{right / max(total, 1):.0%} of {total}" for right, total in every]
            print(f"| {name} | none left out | " + " | ".join(shown) + " |")
            ranks = [
                rank_correlation([told(c) for c in each], [MEASURED[unit](c) for c in each])
                for each in halves.values()
            ]
            print(f"| {name} | rank correlation | " + " | ".join(f"{rank:.2f}" for rank in ranks) + " |")


def tell_sizes(halves: dict[str, Sequence[Case]]) -> None:
    """Sizes are the same in shares and in nats: both are divided by the same worth."""
    print(
        "\n| foretold / measured | cases | measured too small | median | within 2 | within 3 |\n"
        + "|---" * 6
        + "|"
    )
    for name, all_kinds in halves.items():
        for kind in ("all", *dict.fromkeys(each.kind for each in all_kinds)):
            cases = [each for each in all_kinds if kind in ("all", each.kind)]
            ratios = [
                each.foretold_share / each.measured_share
                for each in cases
                if each.measured_share > CLOSE["share"]
            ]
            within = [float(np.mean([1 / by < each < by for each in ratios])) for by in (2, 3)]
            print(
                f"| {name}, {kind} | {len(cases)} | {len(cases) - len(ratios)} | {np.median(ratios):.2f} "
                f"| {within[0]:.0%} | {within[1]:.0%} |"
            )


def tell_verdicts(halves: dict[str, Sequence[Case]]) -> None:
    print(f"\nHurts: a measured share above {HURTS:.0%}.\n")
    print(
        "| verdict | half | hurts, foretold | foretold alone | hurts alone | neither | right |\n"
        + "|---" * 7
        + "|"
    )
    chosen = halves["chosen on"]
    shares = FORETOLD["share"]
    rules = {f"coupling above {HURTS:.0%}, fixed before": (shares["coupling"], HURTS)}
    for name, told in shares.items():
        above = best_threshold(chosen, told)
        rules[f"{name} above {above:.1%}, best on the first half"] = (told, above)
    rules["always hurts"] = (lambda each: 1.0, 0.0)
    for rule, (told, above) in rules.items():
        for half, cases in halves.items():
            found = right_verdicts(cases, told, above)
            right = found[0] + found[3]
            print(f"| {rule} | {half} | " + " | ".join(map(str, found)) + f" | {right} of {len(cases)} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="six networks, one rate, one seed")
    parser.add_argument("--keep", type=Path, help="a file of what was run, to go on from")
    options = parser.parse_args()
    cases = run_cases(QUICK if options.quick else range(len(CASES)), options.quick, options.keep)
    halves: dict[str, Sequence[Case]] = {
        "chosen on": [each for each in cases if not each.judged_on],
        "judged on": [each for each in cases if each.judged_on],
        "all": cases,
    }
    tell_cases(cases)
    tell_orders(halves)
    tell_sizes(halves)
    tell_verdicts(halves)


if __name__ == "__main__":
    main()
