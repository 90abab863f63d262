"""Computation against communication, as models and machines grow: the whole study from one profile."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainwright.cluster.types import Cluster
from trainwright.cost.profile import Profile
from trainwright.study.algorithm_edge import model_rows
from trainwright.study.future_models import (
    FASTER,
    ROOMIER,
    Points,
    Spread,
    all_points,
    memory_points,
    shard_points,
    spread,
)
from trainwright.study.layer_time import Baseline, build_baseline
from trainwright.study.switches import Switches

SHIPPED = Path(__file__).parent.parent / "catalog" / "profiles" / "mi210-node.toml"
LARGE = 16384.0  # hidden size from which a model is larger than GPT-3
REPEATS = 20  # of each measurement, here and there
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Avoided:
    """Device-seconds to measure all points, against those to measure the baseline."""

    points: int
    points_s: float
    baseline_s: float

    @property
    def times(self) -> float:
        """How many times as long."""
        return self.points_s / self.baseline_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The projection against kernels of the profile that it does not use."""

    kernels: int
    median_error: float
    close: int  # within 15 %


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Study:
    """Everything that the study finds."""

    profile: Profile
    cluster: Cluster
    switches: Switches
    models: list[Mapping[str, object]]  # published ones, by arithmetic
    everywhere: Points  # over all TP
    by_memory: Mapping[float, Points]  # at the TP that memory requires, for each growth of memory
    by_shard: Points  # at the published pairs of H and TP
    avoided: Avoided
    check: Check | None

    def spreads(self, points: Points, *, large: bool = False) -> Mapping[float, Spread]:
        """How serialized shares lie at each ratio of compute to communication."""
        at = points.sizes.hidden >= (LARGE if large else 0.0)
        return {faster: spread(points.time.serialized_share(faster)[at], faster) for faster in FASTER}


def run_study(profile: Profile, cluster: Cluster, switches: Switches) -> Study:
    """Project all models from one profile."""
    baseline = build_baseline(profile, cluster)
    everywhere = all_points(baseline, switches)
    return Study(
        profile=profile, cluster=cluster, switches=switches, models=model_rows(), everywhere=everywhere,
        by_memory={roomier: memory_points(baseline, switches, roomier) for roomier in ROOMIER},
        by_shard=shard_points(baseline, switches), avoided=_avoided(profile, everywhere),
        check=_check(profile, baseline),
    )  # fmt: skip


def _avoided(profile: Profile, points: Points) -> Avoided:
    """A point occupies TP devices; a kernel all processes of the profile, a collective its members."""
    layer_s = points.time.compute_s + points.time.serialized_s
    kernels_s = sum(each.seconds for each in profile.kernels if each.region) * profile.processes
    collectives_s = sum(each.seconds * each.members for each in profile.collectives)
    return Avoided(
        points=points.count, points_s=REPEATS * float((layer_s * points.sizes.tp).sum()),
        baseline_s=REPEATS * (kernels_s + collectives_s),
    )  # fmt: skip


def _check(profile: Profile, baseline: Baseline) -> Check | None:
    works = {each.work for each in profile.kernels if each.region}
    others = [each for each in profile.kernels if not each.region and each.work in works]
    if not others:
        return None
    errors = np.array(
        [
            float(baseline.kernels.seconds(each.work, *(np.array([size]) for size in each.sizes))[0])
            / each.seconds
            - 1.0
            for each in others
        ]
    )
    return Check(
        kernels=len(others),
        median_error=float(np.median(np.abs(errors))),
        close=int((np.abs(errors) <= 0.15).sum()),
    )
