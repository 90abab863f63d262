"""Commands that would take long, stopped where their options have become arguments, which are printed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.constant_profile import constant_profile


@contextmanager
def undrawn() -> Iterator[None]:
    """Figures as a file of what would be drawn, which takes no time."""

    def save(folder: Path, figures: Any) -> list[Path]:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "figures.txt").write_text("\n".join(map(repr, figures)))
        return []

    with (
        patch("trainwright.report.figures.save_pictures", save),
        patch("trainwright.sweep.plot.save_figures", save),
        patch("trainwright.cli.study_folder.save_figures", save),
    ):
        yield


@contextmanager
def trained() -> Iterator[None]:
    """`run`: what the processes would do, and how they would be started."""
    from trainwright.cli import run, run_algorithm
    from trainwright.model.load import load_model
    from trainwright.runtime import learner
    from trainwright.runtime.learner import build_learner

    def launch(self: Any, count: int) -> int:
        _tell_training(run._parse(self.arguments[0], None))
        print(count, self.restarts, self.left(1))
        return 0

    def supervise(self: Any, count: int) -> int:
        _tell_training(run_algorithm.parse_job(self.arguments[0]))
        print(count, self.restarts, self.replaces, self.timeout_s)
        return 0

    def built(architecture: Any, *stated: Any) -> Any:
        print("model", stated)
        return build_learner(architecture, stated[0], stated[1], None)

    def own(text: str, *stated: Any) -> Any:
        from tests.option_modes import DENSE

        return built(load_model(DENSE), *stated)

    assert learner
    with (
        patch("trainwright.runtime.launch.Launch.run", launch),
        patch("trainwright.runtime.apart.supervise.Supervisor.run", supervise),
        patch("trainwright.cli.run_model.build_learner", built),
        patch("trainwright.runtime.own_module.build_own", own),
    ):
        yield


def _tell_training(training: Any) -> None:
    """A run in words: all that its options have become."""
    samples = training.samples
    print(samples.seq, samples.batch, samples.seed, samples.tokens)
    for name in ("plan", "algorithm", "workers", "seed", "recipe", "keeping", "evaluate_every", "timeout_s"):
        print(name, getattr(training, name, ""))


@contextmanager
def launched() -> Iterator[None]:
    """`run` in a process that torchrun has started: what it would do, if it were the only one left."""
    with (
        trained(),
        patch.dict(os.environ, {"RANK": "0", "WORLD_SIZE": "1"}),
        patch("trainwright.runtime.process.run_process", lambda parse, **_: _tell_training(parse(1)) or 0),
    ):
        yield


@contextmanager
def measured() -> Iterator[None]:
    """`profile`: what would be measured; another machine stands for this one."""
    from trainwright.runtime.profile.session import Measured

    def measure(rounds: Any, kind: str, threads: int, budget_s: float, told: Any) -> Measured:
        print([each.processes for each in rounds], kind, threads, budget_s)
        return Measured(profile=constant_profile(), planned=1, ended="")

    with patch("trainwright.runtime.profile.session.measure_rounds", measure):
        yield


@contextmanager
def swept() -> Iterator[None]:
    """`sweep`: how it would be run; then it is, in this process."""
    from trainwright.sweep.run import run_sweep

    def spied(sweep: Any, folder: Any, *, workers: int, ray: str, progress: Any) -> Any:
        print(workers, ray)
        return run_sweep(sweep, folder, workers=1)

    with patch("trainwright.sweep.run.run_sweep", spied):
        yield


@contextmanager
def told_cases() -> Iterator[None]:
    """`study flexible-plans`: which cases it would compare."""
    from trainwright.search.trial import Trial
    from trainwright.study.flexible_plans import Outcome

    best = Trial(
        plan="p", step_s=1.0, total_bytes=1.0, capacity_bytes=2.0, fits=True, time_s={"matmul": 1.0},
        device_w=1.0, tokens_per_joule=1.0, row_bytes=(1.0,),
    )  # fmt: skip

    def compared(case: Any) -> Outcome:
        print(case)
        return Outcome(case=case, best={"knobs": best}, flexible=best, reason="")

    with patch("trainwright.study.flexible_plans.compare", compared):
        yield


@contextmanager
def told_runs() -> Iterator[None]:
    """`study subnetworks`: on what it would compare; nothing is found."""
    from trainwright.study.subnetworks import Study

    def run_study(settings: Any, folder: Any, tell: Any) -> Study:
        print([(each.network, each.workers, each.steps) for each in settings], folder)
        return Study(endings=(), results=(), estimates=())

    with patch("trainwright.study.subnetworks.run_study", run_study):
        yield


@contextmanager
def listening() -> Iterator[None]:
    """`serve`: how the server would be set up."""

    class Listening:
        def getsockname(self) -> tuple[str, int]:
            return "", 0

    def listen(settings: Any) -> Listening:
        print(settings)
        return Listening()

    with patch("trainwright.web.serve._listen", listen), patch("uvicorn.Server.run"):
        yield
