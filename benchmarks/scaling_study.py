"""How long the study of scaling takes, beside one plan search in the same run."""

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "2")

import time
from collections.abc import Callable

from trainwright.cluster.load import load_cluster
from trainwright.cost.load import load_constants
from trainwright.estimate.types import Job
from trainwright.model.build import build_graph
from trainwright.model.load import load_model
from trainwright.plan.strategy import PRECISIONS
from trainwright.search.find import Question, find_plans
from trainwright.study.scaling import Asked, run_study
from trainwright.study.scaling_figures import study_figures

LIMIT_S = 20.0  # for the whole study, on two cores


def search() -> int:
    """The reference: every legal strategy of Llama 3 70B on 512 H100."""
    cluster, constants = load_cluster("h100:512"), load_constants()
    job = Job(
        graph=build_graph(load_model("llama3-70b")), cluster=cluster, stack=constants.stack("generic"),
        efficiency=constants.efficiency(cluster.device), seq=8192, global_batch=1024,
    )  # fmt: skip
    fixed = {"precision": (PRECISIONS.index("bf16"),)}
    return find_plans(Question(job=job, batches=(1024,), fixed=fixed, most={"vpp": 16})).evaluated


def study() -> int:
    """The default study with its verdicts; drawing is not counted."""
    found = run_study(Asked())
    study_figures(found)
    return sum(len(each.points) for each in found.curves)


def fastest_s(run: Callable[[], int], repeat: int) -> tuple[float, int]:
    times_s, count = [], 0
    for _ in range(repeat):
        start_s = time.perf_counter()
        count = run()
        times_s.append(time.perf_counter() - start_s)
    return min(times_s), count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3, help="runs, of which the fastest counts")
    options = parser.parse_args()
    search_s, evaluated = fastest_s(search, options.repeat)
    study_s, points = fastest_s(study, options.repeat)
    print(f"one search: {search_s:.2f} s, {evaluated:,} strategies evaluated (llama3-70b on 512 h100)")
    print(f"the study:  {study_s:.2f} s, {points:,} points; {study_s / search_s:.1f} times the search")
    print(f"limit: {LIMIT_S:g} s on two cores, {'kept' if study_s < LIMIT_S else 'missed'}")


if __name__ == "__main__":
    main()
