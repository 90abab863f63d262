"""Experiments on all cores, each kept as it ends, so that work that was interrupted goes on."""

import json
import multiprocessing
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from threading import Thread
from typing import Any

from trainwright.algorithm.experiment import Contest, Curve, Experiment, Mark
from trainwright.output_file import make_folder, save_text
from trainwright.report.files import render_json

# That the curvature is taken on; a sample of text is a window of many characters.
_SAMPLES: Mapping[Contest, int] = {"mlp": 512, "given-mlp": 512, "transformer": 64}
Done = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What the coupling of an exactly trained network says of subnetworks cut by an algorithm.

    `share` is of what the network has `learned`, which is in units of its loss.
    """

    experiment: Experiment  # that trained it
    algorithm: str
    off_diagonal: float
    share: float
    learned: float


def run_experiments(
    experiments: Sequence[Experiment], folder: Path | None, done: Done, pool: ProcessPoolExecutor
) -> dict[Experiment, Curve]:
    """Each one's curve."""
    found: dict[Experiment, Curve] = {}
    missing = []
    for each in experiments:
        if (tree := _read(folder, each)) is not None:
            found[each] = _curve(each, tree)
            done(_named(each))
        else:
            missing.append(each)
    for (given,), tree in _carried_out(pool, _rehearsed, [(each,) for each in missing]):
        _keep(folder, given, tree)
        found[given] = _curve(given, tree)
        done(_named(given))
    return found


Asked = tuple[Experiment, tuple[str, ...]]  # who trains a network, and cuts of it


def begin_estimates(
    asked: Sequence[Asked], folder: Path | None, pool: ProcessPoolExecutor
) -> dict[Asked, "Future[Any]"]:
    """Ask for the coupling of networks that experiments train, for every cut; what is kept is at hand."""
    found: dict[Asked, Future[Any]] = {}
    for each in asked:
        tree = _read(folder, each)
        if tree is None or any("learned" not in row for row in tree):  # an earlier release kept others
            found[each] = pool.submit(_estimated, *each)
        else:
            found[each] = Future()
            found[each].set_result(tree)
    return found


def end_estimates(begun: Mapping[Asked, "Future[Any]"], folder: Path | None, done: Done) -> list[Estimate]:
    """What was asked for."""
    found = []
    for asked, future in begun.items():
        _keep(folder, asked, future.result())
        found += [Estimate(experiment=asked[0], **row) for row in future.result()]
        done(f"coupling of {_named(asked[0])}")
    return found


def _carried_out(
    pool: ProcessPoolExecutor, work: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Tasks and what they came to, as they end."""
    waiting = {pool.submit(work, *task): task for task in tasks}
    for each in as_completed(waiting):
        yield waiting[each], each.result()


@contextmanager
def all_cores() -> Iterator[ProcessPoolExecutor]:
    """Processes of one thread, started as they are needed; interrupted, what has not begun is dropped."""
    size = os.cpu_count() or 1
    pool = ProcessPoolExecutor(size, multiprocessing.get_context("spawn"), initializer=_prepare)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare() -> None:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it ends it
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """However the process that started this one ends, nothing goes on without it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _rehearsed(experiment: Experiment) -> Any:
    from trainwright.algorithm.rehearse import rehearse

    return [asdict(each) for each in rehearse(experiment).marks]


def _estimated(experiment: Experiment, cuts: tuple[str, ...]) -> Any:
    from trainwright.algorithm.rehearse import couplings

    found = couplings(experiment, cuts, _SAMPLES[experiment.network])
    return [{"algorithm": cut} | asdict(each) for cut, each in zip(cuts, found, strict=True)]


def _curve(experiment: Experiment, tree: Any) -> Curve:
    return Curve(experiment=experiment, marks=tuple(Mark(**each) for each in tree))


def _named(experiment: Experiment) -> str:
    kind = "" if experiment.kind == "whole" else f"{experiment.kind} "
    return (
        f"{experiment.network}, {experiment.workers} workers, {kind}{experiment.algorithm}, "
        f"rate {experiment.rate:g}, seed {experiment.seed}"
    )


def _asked(what: Any) -> Any:
    """What was asked, as JSON has it; the text that is learned comes with Python, so its version counts."""
    parts = what if isinstance(what, tuple) else (what,)
    plain = [asdict(each) if isinstance(each, Experiment) else list(each) for each in parts]
    return {"asked": plain, "python": platform.python_version()}


def _path(folder: Path, what: Any) -> Path:
    return folder / "runs" / f"{sha256(json.dumps(_asked(what)).encode()).hexdigest()[:20]}.json"


def _read(folder: Path | None, what: Any) -> Any:
    """What is kept; nothing if there is none, or it is damaged."""
    if folder is None:
        return None
    try:
        tree: Mapping[str, Any] = json.loads(_path(folder, what).read_text(encoding="utf-8"))
        return tree["found"] if tree["of"] == json.loads(json.dumps(_asked(what))) else None
    except (OSError, KeyError, TypeError, ValueError):
        return None


def _keep(folder: Path | None, what: Any, found: Any) -> None:
    if folder is not None:
        make_folder(folder / "runs")
        save_text(_path(folder, what), render_json({"of": _asked(what), "found": found}))
