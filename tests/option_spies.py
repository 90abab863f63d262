"""Spies on the slow functions of commands: they print the arguments that options have become."""

import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache, wraps
from importlib import import_module
from pathlib import Path
from shutil import copytree
from typing import Any
from unittest.mock import patch

from tests.constant_profile import constant_profile

# Slow functions of plan and simulate, by the module that calls them: equal arguments have equal results.
_PURE = (
    ("trainwright.api.ranked_plans", "find_plans"), ("trainwright.api.ranked_plans", "what_if"),
    ("trainwright.api.ranked_plans", "find_front"), ("trainwright.api.ranked_plans", "find_families"),
    ("trainwright.api.ranked_plans", "batch_limit"), ("trainwright.api.chosen_batch", "choose_batch"),
    ("trainwright.api.sizing", "find_winner"), ("trainwright.api.sizing", "batch_limit"),
    ("trainwright.api.non_uniform", "find_flexible"), ("trainwright.api.low_communication", "find_winner"),
    ("trainwright.api.low_communication", "find_apart"), ("trainwright.api.low_communication", "lower"),
    ("trainwright.api.recommender_plans", "lay_instances"),
    ("trainwright.api.simulate_low_communication", "simulate_apart"),
    ("trainwright.simulate.whole", "simulate_plan"), ("trainwright.report.summary", "estimate"),
)  # fmt: skip
SPIED = "spied.txt"  # the file in which spies record arguments
_RESULTS: dict[tuple[str, bytes], Any] = {}


@contextmanager
def shared_results() -> Iterator[None]:
    """Pure functions that compute once for equal arguments, so that an option costs only what it changes."""
    with ExitStack() as stack:
        for module, name in _PURE:
            function = getattr(import_module(module), name)
            stack.enter_context(patch(f"{module}.{name}", _shared(f"{module}.{name}", function)))
        yield


def _shared(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def shared(*values: Any, **options: Any) -> Any:
        key = name, pickle.dumps((values, options))
        if key not in _RESULTS:
            _RESULTS[key] = function(*values, **options)
        return _RESULTS[key]

    return shared


@contextmanager
def undrawn() -> Iterator[None]:
    """Figures as a file of what would be drawn, and tables without layout, which takes little time."""

    def save(folder: Path, figures: Any) -> list[Path]:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "figures.txt").write_text("\n".join(map(repr, figures)))
        return []

    def show(console: Any, *parts: Any) -> None:
        for part in parts:
            print(
                *((each.header, *each.cells) for each in part.columns)
                if hasattr(part, "columns")
                else (part,)
            )

    with (
        patch("trainwright.report.figures.save_pictures", save),
        patch("trainwright.sweep.plot.save_figures", save),
        patch("trainwright.report.figures.save_figures", save),
        patch("trainwright.report.tables.show", show),
    ):
        yield


def record(*values: object) -> None:
    """Write arguments to a file of the current directory, as a spy sees them."""
    with Path(SPIED).open("a", encoding="utf-8") as file:
        print(*values, file=file)


@contextmanager
def drafted() -> Iterator[None]:
    """`plan --flexible`: the question, of which no plan is drafted."""
    from trainwright.search.flexible import Flexible

    def find_flexible(question: Any, setting: Any) -> Flexible:
        record(question, setting)
        return Flexible(knobs=None, plans=(), reasons=(), drafted=0, simulated=0)

    with patch("trainwright.api.non_uniform.find_flexible", find_flexible):
        yield


@contextmanager
def trained() -> Iterator[None]:
    """`run`: what the processes would do, and how they would be started; a learner stands for modules."""
    from trainwright.cli import run, run_algorithm
    from trainwright.model.load import load_model
    from trainwright.runtime import learner
    from trainwright.runtime.learner import build_learner

    def launch(self: Any, count: int) -> int:
        _record_training(run._parse(self.arguments[0], None))
        record(count, self.restarts, self.left(1))
        return 0

    def supervise(self: Any, count: int) -> int:
        _record_training(run_algorithm.parse_job(self.arguments[0]))
        record(count, self.restarts, self.replaces, self.timeout_s)
        return 0

    def built(architecture: Any, *stated: Any) -> Any:
        record("model", stated)
        return build_learner(architecture, stated[0], stated[1], None)

    def own(text: str, *stated: Any) -> Any:
        from tests.option_files import DENSE

        return replace(built(load_model(DENSE), *stated), alone=object())

    assert learner
    with (
        patch("trainwright.runtime.launch.Launch.run", launch),
        patch("trainwright.runtime.apart.supervise.Supervisor.run", supervise),
        patch("trainwright.runtime.apart.supervise.TCPStore"),  # which listens, and sometimes takes 5 s
        patch("trainwright.cli.run_model.build_learner", built),
        patch("trainwright.runtime.own_module.build_own", own),
    ):
        yield


_TRAINING = (
    "plan", "algorithm", "workers", "seed", "recipe", "keeping", "evaluate_every", "timeout_s", "check",
)  # fmt: skip


def _record_training(training: Any) -> None:
    """All that the options of a run have become."""
    samples = training.samples
    record(samples.seq, samples.batch, samples.seed, samples.tokens)
    for name in _TRAINING:
        record(name, getattr(training, name, ""))


@contextmanager
def launched() -> Iterator[None]:
    """`run` in a process that torchrun has started: what it would do, if it were the only one left."""
    with (
        trained(),
        patch.dict(os.environ, {"RANK": "0", "WORLD_SIZE": "1"}),
        patch("trainwright.runtime.process.run_process", lambda parse, **_: _record_training(parse(1)) or 0),
    ):
        yield


@contextmanager
def measured() -> Iterator[None]:
    """`profile`: what would be measured; another machine stands for this one."""
    from trainwright.runtime.profile.session import Measured

    def measure(rounds: Any, kind: str, threads: int, budget_s: float, told: Any) -> Measured:
        record([each.processes for each in rounds], kind, threads, budget_s)
        return Measured(profile=constant_profile(), planned=1, ended="")

    with patch("trainwright.runtime.profile.session.measure_rounds", measure):
        yield


@contextmanager
def swept() -> Iterator[None]:
    """`sweep`: how it would be run; the dataset of the same sweep stands for what it would write."""
    from tests.option_files import FOLDER
    from trainwright.sweep.dataset import load_manifest

    def run_sweep(sweep: Any, folder: Path, *, workers: int, ray: str, progress: Any) -> Any:
        record(workers, ray)
        copytree(FOLDER / "dataset", folder)
        return load_manifest(folder)

    with patch("trainwright.sweep.run.run_sweep", run_sweep):
        yield


@contextmanager
def compared() -> Iterator[None]:
    """`study flexible-plans`: which cases it would compare."""
    from trainwright.search.trial import Trial
    from trainwright.study.flexible_plans import Outcome

    best = Trial(
        plan="p", step_s=1.0, total_bytes=1.0, capacity_bytes=2.0, fits=True, time_s={"matmul": 1.0},
        device_w=1.0, tokens_per_joule=1.0, row_bytes=(1.0,),
    )  # fmt: skip

    def compare(case: Any) -> Outcome:
        record(case)
        return Outcome(case=case, best={"knobs": best}, flexible=best, reason="")

    with patch("trainwright.study.flexible_plans.compare", compare):
        yield


@contextmanager
def learned() -> Iterator[None]:
    """`study subnetworks`: on what it would train; every method has the same result after one step."""
    from trainwright.algorithm.experiment import Curve, Experiment, Mark
    from trainwright.study.subnetworks import Result, Study, method_of

    def run_study(settings: Any, folder: Any, tell: Any) -> Study:
        record(settings, folder)
        numbers = {"loss": 1.0, "accuracy": 0.5}
        mark = Mark(step=1, sent_bytes=1.0, validation=numbers, test=numbers)
        first = Experiment(network="mlp", algorithm="ddp", workers=2, steps=1, rate=1.0, seed=0)
        curves = (Curve(experiment=first, marks=(mark,)),)
        results = tuple(
            Result(setting=setting, method=method_of(name), rate=1.0, curves=curves, exact=curves)
            for setting in settings[:1]
            for name in setting.methods
        )
        return Study(endings=(), results=results, estimates=())

    with patch("trainwright.study.subnetworks.run_study", run_study):
        yield


@contextmanager
def designed() -> Iterator[None]:
    """`study cluster-design`: what it would compare; a small study stands for all."""
    from trainwright.study.cluster_design import Asked

    def run_study(asked: Asked) -> Any:
        record(asked)
        return replace(_small_design(), asked=asked)

    _small_design()
    with patch("trainwright.study.cluster_design.run_study", run_study):
        yield


@cache
def _small_design() -> Any:
    from trainwright.study.cluster_design import Asked, run_study

    return run_study(Asked(model="gpt2", recommender="dlrm-mlperf", devices=64, batch=64, clusters=("h100",)))


@contextmanager
def listening() -> Iterator[None]:
    """`serve`: how the server would be set up."""

    class Listening:
        def getsockname(self) -> tuple[str, int]:
            return "", 0

    def listen(settings: Any) -> Listening:
        record(settings)
        return Listening()

    with patch("trainwright.cli.serve._listen", listen), patch("uvicorn.Server.run"):
        yield
