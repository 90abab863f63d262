"""What the coupling foretells of subnetworks, beside what they lose: 60 cases, chosen before any was run.

    python benchmarks/coupling_cases.py [--keep FILE] [--quick]

Twenty networks, none of them the study's, are trained exactly, by three cuts into subnetworks each, without
whole steps, and by local SGD with the same rounds. Two learning rates are tried with the first seed; the
second seed is trained at the one with the least loss on validation samples. Every other network is of the
half that is judged on. `--keep` goes on from what a file has; `--quick` is six networks, one rate, one seed.

What subnetworks lose against exact training is what meeting rarely costs and what being cut costs; the theory
of the coupling speaks of the second alone, which is the loss above that of local SGD. A share is of what the
exactly trained network has learned (the entropy of the answers' frequencies, less its loss) or of what its
units are worth (its loss without any of them, less its loss). Estimates with local SGD's measured loss in
them are for the loss against exact training; they were thought of when all others had been seen.
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
from trainwright.algorithm.coupling import coupling, gated
from trainwright.algorithm.digits import SIDE, draw_digits
from trainwright.algorithm.ist import Ist
from trainwright.algorithm.learning import Learning
from trainwright.algorithm.network import Batch, Mlp, Network, ResidualMlp, Values
from trainwright.algorithm.partition import Cut as Division
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
    learned: float
    lost: tuple[float, ...]  # nats above exact training's, by seed
    rounds: tuple[float, ...]  # the same of local SGD


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
    network, cuts, words = build_network(number), CUTS[letter], " ".join(f"{each:g}" for each in given)
    exact = tuned(number, "ddp", 1, quick)  # with more workers the mathematics is the same
    samples, values = build_lesson(number, 0).samples, exact[0].values
    divided = [Ist(coverage=coverage).cut(network.anatomy, workers) for workers, coverage in cuts]
    rounds = {n: tuned(number, "local-sgd every=20", n, quick) for n in sorted({each[0] for each in cuts})}
    rows: list[dict[str, object]] = []
    for (workers, coverage), cut, told in zip(
        cuts, divided, coupling(network, values, samples, divided), strict=True
    ):
        found = tuned(number, f"ist every=20 coverage={coverage:g}", workers, quick)
        case = Case(
            network=f"{task} {words}: {kind} {'-'.join(map(str, sizes))}".replace(" :", ":"),
            kind=task if kind == "mlp" else kind, cut=f"{workers} workers, {coverage:g}",
            judged_on=bool(number % 2), without=left_out(cut), off_diagonal=told.off_diagonal,
            foretold_share=told.share, worth=gate_worth(network, values, samples),
            learned=told.learned, lost=above(found, exact),
            rounds=above(rounds[workers], exact),
        )  # fmt: skip
        rows.append(asdict(case))
    return rows


def above(courses: Sequence[Course], exact: Sequence[Course]) -> tuple[float, ...]:
    """Loss on the test samples above exact training's, by seed."""
    return tuple(a.last.judged["test"] - b.last.judged["test"] for a, b in zip(courses, exact, strict=True))


def left_out(cut: Division) -> float:
    """The share of all units that a subnetwork is without."""
    units = cut.anatomy.units
    return 1.0 - sum(cut.share(group) * count for group, count in units.items()) / sum(units.values())


def gate_worth(network: Network, values: Values, samples: Batch) -> float:
    """The loss without any unit, less the loss."""
    none = torch.zeros(sum(network.anatomy.units.values()))
    without = judge(network, gated(network.anatomy, values, none), samples)["loss"]
    return without - judge(network, values, samples)["loss"]


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


Number = Callable[[Case], float]


def lost(case: Case) -> float:
    """Nats above exact training's, mean of the seeds."""
    return float(np.mean(case.lost))


def lost_by_cut(case: Case) -> float:
    """Nats above local SGD's, mean of the seeds."""
    return lost(case) - float(np.mean(case.rounds))


BESIDE: dict[str, Number] = {"exact training": lost, "local SGD": lost_by_cut}
# What was lost is divided by a unit; what is foretold comes in that unit.
UNITS: dict[str, Number] = {
    "nats": lambda each: 1.0,
    "share of learned": lambda each: each.learned,
    "share of worth": lambda each: each.worth,
}
NATS: dict[str, Number] = {
    "coupling": lambda each: each.foretold_share * each.learned,
    "coupling x worth": lambda each: each.foretold_share * each.worth,
    "units left out x learned": lambda each: each.without * each.learned,
    "units left out x worth": lambda each: each.without * each.worth,
}
TOGETHER: dict[str, Number] = {
    "local SGD": lambda each: float(np.mean(each.rounds)),
    "coupling + local SGD": lambda each: each.foretold_share * each.learned + float(np.mean(each.rounds)),
}


def estimates(beside: str, unit: str) -> dict[str, Number]:
    """What may be foretold of the loss against a way to train, in a unit."""
    listed = NATS | (TOGETHER if beside == "exact training" else {})
    divided = {name: _divided(each, UNITS[unit]) for name, each in listed.items()}
    return divided | {"units left out": lambda each: each.without}


def _divided(one: Number, other: Number) -> Number:
    return lambda each: one(each) / other(each)


Pair = Callable[[Case, Case], bool]
PAIRS: dict[str, Pair] = {
    "all": lambda a, b: True,
    "one network": lambda a, b: a.network == b.network,
    "two, same cut": lambda a, b: a.network != b.network and a.cut == b.cut,
    "text and other": lambda a, b: (a.kind == "transformer") != (b.kind == "transformer"),
}


def in_order(cases: Sequence[Case], told: Number, seen: Number, close: float, counts: Pair) -> str:
    """Pairs that are in order, of those that count; what is foretold alike is half in order."""
    right, total = 0.0, 0
    for place, a in enumerate(cases):
        for b in cases[:place]:
            apart, size = seen(a) - seen(b), max(abs(seen(a)), abs(seen(b)))
            if counts(a, b) and abs(apart) > close + (0.1 * size if close else 0.0):
                said = told(a) - told(b)
                right += 0.5 if abs(said) < 1e-12 else float(said * apart > 0)
                total += 1
    return f"{right / max(total, 1):.0%} of {total}"


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's; equal numbers share their mean rank."""
    ranks = [
        np.array([(np.less(x, v).sum() + np.less_equal(x, v).sum()) / 2 for v in x]) for x in (one, other)
    ]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def verdicts(cases: Sequence[Case], told: Number, seen: Number, limit: float) -> tuple[int, int, int, int]:
    """Hurts, and was foretold to; foretold alone; measured alone; neither."""
    pairs = [(told(each) > limit, seen(each) > HURTS) for each in cases]
    both, said, hurt = pairs.count((True, True)), pairs.count((True, False)), pairs.count((False, True))
    return both, said, hurt, pairs.count((False, False))


def best_limit(cases: Sequence[Case], told: Number, seen: Number) -> float:
    """The one with most verdicts right, between two values that were foretold; of several the middle one."""
    tried = [(a + b) / 2 for a, b in pairwise(sorted({told(each) for each in cases}))]
    found = [verdicts(cases, told, seen, each) for each in tried]
    right = [both + neither for both, _, _, neither in found]
    best = [each for each, count in zip(tried, right, strict=True) if count == max(right)]
    return best[len(best) // 2]


def tell_row(*words: object) -> None:
    print("| " + " | ".join(map(str, words)) + " |")


def tell_heads(*words: str) -> None:
    print()
    tell_row(*words)
    tell_row(*("---" for _ in words))


def tell_cases(cases: Sequence[Case]) -> None:
    tell_heads(
        "network", "cut", "half", "worth", "learned", "foretold share", "lost, share", "by the cut",
        "foretold nats", "lost, nats (seeds)", "by the cut",
    )  # fmt: skip
    for each in cases:
        seeds = ", ".join(f"{value:.3f}" for value in each.lost)
        tell_row(
            each.network, each.cut, "judged on" if each.judged_on else "chosen on", f"{each.worth:.2f}",
            f"{each.learned:.2f}", f"{each.foretold_share:.1%}", f"{lost(each) / each.learned:.1%}",
            f"{lost_by_cut(each) / each.learned:.1%}", f"{each.foretold_share * each.learned:.3f}",
            f"{lost(each):.3f} ({seeds})", f"{lost_by_cut(each):.3f}",
        )  # fmt: skip


Halves = dict[str, Sequence[Case]]


def measured(beside: str, unit: str) -> Number:
    """What was lost against a way to train, in a unit."""
    return lambda each: BESIDE[beside](each) / UNITS[unit](each)


def tell_orders(halves: Halves) -> None:
    """Pairs in order: by halves, by kinds of pairs, without any left out; rank correlations."""
    shown = [name for name in PAIRS if name != "all"]
    heads = [*(f"{half}, pairs" for half in halves), *shown, "no pair left out"]
    tell_heads("beside, in", "estimate", *heads, *(f"{half}, rank correlation" for half in halves))
    for beside in BESIDE:
        for unit in UNITS:
            seen, close = measured(beside, unit), CLOSE[unit.split()[0]]
            for name, told in estimates(beside, unit).items():
                tell_row(
                    f"{beside}, {unit}", name,
                    *(in_order(each, told, seen, close, PAIRS["all"]) for each in halves.values()),
                    *(in_order(halves["all"], told, seen, close, PAIRS[each]) for each in shown),
                    in_order(halves["all"], told, seen, 0.0, PAIRS["all"]),
                    *(
                        f"{rank_correlation([told(c) for c in each], [seen(c) for c in each]):.2f}"
                        for each in halves.values()
                    ),
                )  # fmt: skip


def tell_sizes(halves: Halves) -> None:
    """Foretold over measured, where enough of what was learned was lost."""
    tell_heads("beside, half, network", "estimate", "cases", "too small", "median", "within 2", "within 3")
    for beside, name in (
        ("local SGD", "coupling"), ("local SGD", "coupling x worth"),
        ("exact training", "coupling + local SGD"), ("exact training", "coupling x worth"),
    ):  # fmt: skip
        told, seen = estimates(beside, "share of learned")[name], measured(beside, "share of learned")
        for half, every in halves.items():
            for kind in ("all", *dict.fromkeys(each.kind for each in every)):
                cases = [each for each in every if kind in ("all", each.kind)]
                ratios = [told(each) / seen(each) for each in cases if seen(each) > CLOSE["share"]]
                middle = f"{np.median(ratios):.2f}" if ratios else "-"
                within = [sum(1 / by < each < by for each in ratios) for by in (2, 3)]
                few = len(cases) - len(ratios)
                tell_row(f"{beside}, {half}, {kind}", name, len(cases), few, middle, *within)


def tell_verdicts(halves: Halves) -> None:
    """Whether a share above the limit was foretold, and measured; or above one chosen on the first half."""
    tell_heads(
        "beside, in", "foretold if", "half", "foretold and hurts", "foretold alone", "hurts alone", "neither"
    )
    for beside, unit, names in (
        ("local SGD", "share of learned", ("coupling", "units left out")),
        ("exact training", "share of learned", ("coupling + local SGD", "local SGD", "coupling")),
        ("exact training", "share of worth", ("coupling x worth", "units left out")),
    ):  # fmt: skip
        seen = measured(beside, unit)
        for name in names:
            told = estimates(beside, unit)[name]
            chosen = best_limit(halves["chosen on"], told, seen)
            for rule, limit in ((f"above {HURTS:.0%}", HURTS), (f"above {chosen:.1%}, chosen", chosen)):
                for half, cases in halves.items():
                    found = verdicts(cases, told, seen, limit)
                    tell_row(f"{beside}, {unit}", f"{name} {rule}", half, *found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="six networks, one rate, one seed")
    parser.add_argument("--keep", type=Path, help="a file of what was run, to go on from")
    options = parser.parse_args()
    cases = run_cases(QUICK if options.quick else range(len(CASES)), options.quick, options.keep)
    halves: Halves = {
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
