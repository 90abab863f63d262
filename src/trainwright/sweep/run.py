"""A sweep from its first point to its last: on this machine or on Ray, gone on with where it was left."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trainwright.errors import BadInput
from trainwright.sweep.dataset import (
    COPY,
    MANIFEST,
    Manifest,
    UnfinishedSweep,
    add_part,
    broken_parts,
    check_same,
    load_manifest,
    new_manifest,
    part_name,
    remove_drafts,
    save_manifest,
    write_whole,
)
from trainwright.sweep.here import make_alone, make_together
from trainwright.sweep.on_ray import check_ray, make_on_ray
from trainwright.sweep.parquet import load_arrow
from trainwright.sweep.part import Made, points_per_part
from trainwright.sweep.types import Sweep

Progress = Callable[[int, int, str], None]  # points that are done, of how many, and words
_SAVE_SHARE = 0.05  # of the time may go into saving manifests: a kill costs twenty times that of one


class Cancelled(UnfinishedSweep):
    """The sweep was told to stop."""


def run_sweep(
    sweep: Sweep,
    folder: Path,
    *,
    workers: int = 0,
    ray: str = "",
    progress: Progress | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Manifest:
    """Make the dataset of a sweep, or what is missing of it; returns its manifest.

    The dataset is the same whatever makes it, and however often it was interrupted. `workers`: processes (0:
    one for each core; 1: this one). `ray`: the address of a Ray cluster, or `local`. `cancelled` is asked
    several times a second, and `Cancelled` raised once it says so.
    """
    _check_workers(workers, ray)
    load_arrow()  # before anything is made: what is missing is said at once
    if ray:
        check_ray()
    _make_folder(folder)
    with _only_run(folder):
        manifest = _begin(sweep, folder)
        size = manifest.points_per_part

        def make(numbers: "list[int]") -> Iterator[Made]:
            count = min(workers or os.cpu_count() or 1, len(numbers))
            if ray and numbers:
                return make_on_ray(sweep, size, numbers, ray, cancelled)
            if count > 1:
                return make_together(sweep, size, numbers, count, cancelled)
            return make_alone(sweep, size, numbers, cancelled)

        _mend(folder, manifest, make)
        return _continue(folder, manifest, make, progress or _silent)


def _check_workers(workers: int, ray: str) -> None:
    """Raise for a count of processes that cannot be honoured."""
    if workers < 0:
        raise BadInput("--workers", workers, "is less than 0", "use 0 for one process per core")
    if ray and workers:
        rule = "does not apply with --ray, which uses the cores of the Ray cluster"
        raise BadInput("--workers", workers, rule, "leave out one of the two")


def _begin(sweep: Sweep, folder: Path) -> Manifest:
    """The manifest of what is finished: of nothing, or of an earlier run of the same sweep."""
    fresh = new_manifest(sweep, points_per_part(sweep))
    if not (folder / MANIFEST).exists():
        strange = sorted(each.name for each in folder.iterdir() if not each.name.startswith("."))
        if set(strange) - {COPY}:
            raise BadInput(
                "sweep folder", str(folder), f"holds other files ({strange[0]})", "choose another --out"
            )
        remove_drafts(folder)
        write_whole(folder / COPY, sweep.text.encode())
        save_manifest(folder, fresh)
        return fresh
    old = load_manifest(folder)
    check_same(folder, old, fresh)
    remove_drafts(folder)
    return old


def _mend(folder: Path, manifest: Manifest, make: "Callable[[list[int]], Iterator[Made]]") -> None:
    """Make finished parts anew that are no longer as they were written."""
    broken = [number for number, _ in broken_parts(folder, manifest)]
    for number, made in zip(broken, make(broken), strict=False):
        write_whole(folder / part_name(number), made.content)
    for number, wrong in broken_parts(folder, manifest) if broken else ():
        raise UnfinishedSweep(
            f'file "{folder / part_name(number)}": {wrong}, also when it is made anew; '
            "remove the folder and sweep again"
        )


def _continue(
    folder: Path, manifest: Manifest, make: "Callable[[list[int]], Iterator[Made]]", progress: Progress
) -> Manifest:
    """Make the parts that are missing, in order; the manifest is saved now and then, and at the end."""
    saved, due_s = manifest, 0.0
    progress(_points(manifest), manifest.points, "")
    missing = list(range(len(manifest.parts), manifest.planned))
    parts = make(missing)
    try:
        for made in parts:
            manifest = add_part(folder, manifest, made.content, made.rows)
            start_s = time.monotonic()
            if start_s >= due_s:
                save_manifest(folder, manifest)
                saved, now_s = manifest, time.monotonic()
                due_s = now_s + (now_s - start_s) / _SAVE_SHARE
            progress(_points(manifest), manifest.points, f"{sum(p.rows for p in manifest.parts[-1:]):,} rows")
    finally:
        if hasattr(parts, "close"):
            parts.close()
        if manifest is not saved:
            save_manifest(folder, manifest)
    if not manifest.finished:
        raise Cancelled(
            f"sweep stopped: {_points(manifest):,} of {manifest.points:,} points are done; "
            "run the same command again to go on"
        )
    return manifest


def _points(manifest: Manifest) -> int:
    return min(len(manifest.parts) * manifest.points_per_part, manifest.points)


def _silent(done: int, planned: int, name: str) -> None:
    pass


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or "no folder"
        raise BadInput("--out", str(folder), f"cannot be made ({reason})", "choose another folder") from None


@contextmanager
def _only_run(folder: Path) -> Iterator[None]:
    """Hold the folder: two runs of one sweep would write the same files."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        reason = error.strerror or "no folder"
        raise BadInput(
            "--out", str(folder), f"cannot be opened ({reason})", "choose another folder"
        ) from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BadInput("--out", str(folder), "another run is at work here", "wait for it") from None
        yield
    finally:
        os.close(handle)
