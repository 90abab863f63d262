"""Subnetworks against what users would pick instead: what is run, and what came of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import mean

from trainwright.algorithm.experiment import Contest, Curve, Experiment, Given, Kind
from trainwright.study.algorithm_map import STEPS, WORKERS, Place, build_map
from trainwright.study.intervals import Interval, interval
from trainwright.study.quadratic_cases import Ending, endings
from trainwright.study.rehearsals import Estimate, all_cores, begin_estimates, end_estimates, run_experiments

Tell = Callable[[int, int, str], None]
EXACT, OURS, ROUNDS = "ddp", "ist", "local-sgd"
_MARKS = 4  # points of a curve


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A way to train under a name; `{seventh}` and `{twentieth}` are parts of its run."""

    name: str
    algorithm: str
    kind: Kind = "whole"
    share: float = 1.0
    pace: float = 1.0  # of the rates that are tried: an earlier search had some at its least

    def setting(self, steps: int) -> str:
        """The algorithm, for a run of so many steps."""
        return self.algorithm.format(twentieth=steps // 20, seventh=steps // 7)


METHODS = (
    Method(name=EXACT, algorithm="ddp"),
    Method(name=ROUNDS, algorithm="local-sgd every=20"),
    Method(name="diloco", algorithm="diloco every=20", pace=0.5),
    Method(name="streaming-diloco", algorithm="streaming-diloco every=20 fragments=4"),
    Method(name=OURS, algorithm="ist every=20 coverage=0.75 warmup={twentieth} finish={seventh}"),
    Method(name="ist apart", algorithm="ist every=20 coverage=0.5"),
    Method(name="ist disjoint", algorithm="ist every=20"),
    Method(name="rand-k", algorithm="compressed by=rand-k share=0.1 feedback=no"),
    Method(name="perm-k", algorithm="compressed by=perm-k feedback=no"),
    Method(name="natural", algorithm="compressed by=natural feedback=no"),
    Method(name="qsgd", algorithm="compressed by=qsgd feedback=no"),
    Method(name="top-k", algorithm="compressed by=top-k share=0.01"),
    Method(name="power-sgd", algorithm="power-sgd rank=4"),
    Method(name="diana", algorithm="diana share=0.1"),
    Method(name="ef21", algorithm="ef21 share=0.1"),
    Method(name="marina", algorithm="marina share=0.1", pace=0.5),
    Method(name="small", algorithm="ddp", kind="small", share=0.5),
    Method(name="small local-sgd", algorithm="local-sgd every=20", kind="small", share=0.5),
    Method(name="ensemble", algorithm="ddp", kind="ensemble", share=0.5),
)
CONTROLS = ("small", "small local-sgd", "ensemble")
_APART = ("ist apart", "ist disjoint")  # what the coupling speaks of: nothing is trained whole
_FEW = (EXACT, OURS, "small", "ensemble")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A network and count of workers that methods are compared on, and the learning rates to choose from."""

    network: Contest
    workers: int
    steps: int
    rates: tuple[float, ...]
    methods: tuple[str, ...]
    seeds: int = 3
    given: Given | None = None  # samples in place of ours


_ALL = tuple(each.name for each in METHODS)
_MLP_RATES, _TEXT_RATES = (6e-3, 1.2e-2), (8e-3, 1.6e-2)
FULL = (
    Setting(network="mlp", workers=2, steps=300, rates=_MLP_RATES, methods=_FEW),
    Setting(network="mlp", workers=4, steps=300, rates=_MLP_RATES, methods=_ALL),
    Setting(network="transformer", workers=4, steps=130, rates=_TEXT_RATES, methods=_ALL),
)
QUICK = (
    Setting(network="mlp", workers=2, steps=300, rates=(6e-3,), methods=(EXACT, OURS)),
    Setting(
        network="mlp", workers=4, steps=300, rates=(6e-3,),
        methods=(EXACT, OURS, "ist disjoint", "ensemble"),
    ),
    Setting(
        network="transformer", workers=4, steps=40, rates=(8e-3,), seeds=1,
        methods=(EXACT, ROUNDS, OURS, "ist disjoint", "small"),
    ),
)  # fmt: skip


def given_settings(given: Given) -> tuple[Setting, ...]:
    """The digits' settings, with samples of the user's, and one more rate for those that are soon learned."""
    digits = [each for each in FULL if each.network == "mlp"]
    rates = (0.5 * _MLP_RATES[0], *_MLP_RATES)
    return tuple(replace(each, network="given-mlp", given=given, rates=rates) for each in digits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A method in a setting: its curves at the rate chosen, one a seed, and what they come to."""

    setting: Setting
    method: Method
    rate: float
    curves: tuple[Curve, ...]
    exact: tuple[Curve, ...]  # of exact data parallelism

    @property
    def at_edge(self) -> bool:
        """Whether a rate beyond those tried might have been better."""
        rates = rates_of(self.setting, self.method.name)
        return len(rates) > 2 and self.rate in (rates[0], rates[-1])

    @property
    def loss(self) -> Interval:
        """On the test split."""
        return interval([each.last.test["loss"] for each in self.curves])

    @property
    def accuracy(self) -> Interval:
        """On the test split."""
        return interval([each.last.test["accuracy"] for each in self.curves])

    @property
    def excess_loss(self) -> Interval:
        """Relative to exact data parallelism with the same data and first weights."""
        pairs = zip(self.curves, self.exact, strict=True)
        return interval([a.last.test["loss"] / b.last.test["loss"] - 1.0 for a, b in pairs])

    @property
    def points(self) -> Interval:
        """Accuracy less that of exact data parallelism, in points of a hundred."""
        pairs = zip(self.curves, self.exact, strict=True)
        return interval([100.0 * (a.last.test["accuracy"] - b.last.test["accuracy"]) for a, b in pairs])

    @property
    def sent_bytes(self) -> float:
        """What a worker has sent over its link."""
        return self.curves[0].last.sent_bytes

    @property
    def fewer(self) -> float | None:
        """How many times fewer bytes than exact data parallelism; nothing if none are sent."""
        return self.exact[0].last.sent_bytes / self.sent_bytes if self.sent_bytes else None


@dataclass(frozen=True, kw_only=True)
class Study:
    """All of it."""

    endings: tuple[Ending, ...]
    results: tuple[Result, ...]
    estimates: tuple[Estimate, ...]

    def result(self, network: str, workers: int, method: str) -> Result:
        """One of them."""
        return next(each for each in self.of(network, workers) if each.method.name == method)

    def of(self, network: str, workers: int) -> list[Result]:
        """All methods of a setting."""
        return [r for r in self.results if (r.setting.network, r.setting.workers) == (network, workers)]

    @property
    def settings(self) -> tuple[Setting, ...]:
        """What was compared on."""
        return tuple(dict.fromkeys(each.setting for each in self.results))

    @cached_property
    def places(self) -> list[Place]:
        """The map, by the losses of the transformer with four workers; none without all methods there."""
        measured = {each.method.name: each for each in self.of("transformer", WORKERS)}
        if len(measured) < len(METHODS):
            return []
        excess = {name: each.excess_loss.high for name, each in measured.items()}
        settings = {each.name: each.setting(STEPS) for each in METHODS if each.kind == "whole"}
        return build_map(settings, excess, EXACT)


def run_study(settings: Sequence[Setting], folder: Path | None, tell: Tell) -> Study:
    """Theory, training, coupling; experiments that the folder has are read, new ones are kept there."""
    tuned = [each for setting in settings for each in _tuning(setting)]
    rest = sum(_count(each) for each in settings)
    planned = len(tuned) + rest + 1 + sum(bool(_cuts(each)) for each in settings)
    tell(0, planned, "quadratics")
    done = Progress(tell, planned, 1)
    with all_cores() as pool:
        theory = pool.submit(endings)
        first = run_experiments(tuned, folder, done, pool)
        rates = {
            (setting, name): _best(setting, name, first) for setting in settings for name in setting.methods
        }
        exact = {
            setting: replace(_experiment(setting, EXACT, rates[setting, EXACT], 0), judge_every=0)
            for setting in settings
            if _cuts(setting)
        }
        asked = [(experiment, _cuts(setting)) for setting, experiment in exact.items()]
        estimating = begin_estimates(asked, folder, pool)
        later = run_experiments(
            [each for key, rate in rates.items() for each in _seeds(*key, rate)], folder, done, pool
        )
        estimates = end_estimates(estimating, folder, done)
        ended = tuple(theory.result())
    curves = first | later
    results = [_result(*key, rate, rates[key[0], EXACT], curves) for key, rate in rates.items()]
    return Study(endings=ended, results=tuple(results), estimates=tuple(estimates))


class Progress:
    """Counts what is done, and tells it."""

    def __init__(self, tell: Tell, planned: int, done: int) -> None:
        self.tell, self.planned, self.done = tell, planned, done

    def __call__(self, what: str) -> None:
        """One more is done."""
        self.done += 1
        self.tell(self.done, self.planned, what)


def method_of(name: str) -> Method:
    """A method by its name."""
    return next(each for each in METHODS if each.name == name)


def _experiment(setting: Setting, name: str, rate: float, seed: int) -> Experiment:
    method = method_of(name)
    return Experiment(
        network=setting.network, algorithm=method.setting(setting.steps), workers=setting.workers,
        steps=setting.steps, rate=rate, seed=seed, kind=method.kind, share=method.share,
        judge_every=-(-setting.steps // _MARKS), given=setting.given,
    )  # fmt: skip


def _tuning(setting: Setting) -> list[Experiment]:
    return [
        _experiment(setting, name, rate, 0) for name in setting.methods for rate in rates_of(setting, name)
    ]


def rates_of(setting: Setting, name: str) -> tuple[float, ...]:
    """The learning rates that are tried for a method."""
    return tuple(method_of(name).pace * rate for rate in setting.rates)


def _count(setting: Setting) -> int:
    return (setting.seeds - 1) * len(setting.methods)


def _seeds(setting: Setting, name: str, rate: float) -> list[Experiment]:
    return [_experiment(setting, name, rate, seed) for seed in range(1, setting.seeds)]


def _best(setting: Setting, name: str, curves: Mapping[Experiment, Curve]) -> float:
    """The rate with the least loss on the validation split of the first seed."""

    def loss(rate: float) -> float:
        found = curves[_experiment(setting, name, rate, 0)].last.validation["loss"]
        return found if found == found else float("inf")

    return min(rates_of(setting, name), key=loss)


def _cuts(setting: Setting) -> tuple[str, ...]:
    """The divisions into subnetworks whose harm the coupling is to foretell."""
    return tuple(method_of(name).setting(setting.steps) for name in _APART if name in setting.methods)


def _result(
    setting: Setting, name: str, rate: float, exact_rate: float, curves: Mapping[Experiment, Curve]
) -> Result:
    def of(which: str, at: float) -> tuple[Curve, ...]:
        return tuple(curves[_experiment(setting, which, at, seed)] for seed in range(setting.seeds))

    return Result(
        setting=setting, method=method_of(name), rate=rate, curves=of(name, rate), exact=of(EXACT, exact_rate)
    )


def mean_marks(curves: Sequence[Curve], part: str, number: str) -> list[float]:
    """The mean over seeds at each mark, like the test's accuracy."""
    return [
        mean(getattr(mark, part)[number] for mark in marks)
        for marks in zip(*(each.marks for each in curves), strict=True)
    ]
