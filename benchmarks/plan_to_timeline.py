"""How long a plan takes from its knobs to a timeline: expand, lower, check, tabulate, simulate.

Two cases: GPT-3 175B with TP8 PP16 and 128 microbatches on 1,024 devices, and a 24-layer GPT split over 32
devices. Seconds of processor time, warm, the fastest of some runs. The reference is the plain simulator
on the same step (its rate, measured on fewer microbatches in the same run).
"""

import argparse
import time
from collections.abc import Callable

from trainwright.cluster.load import load_cluster
from trainwright.cost.load import load_constants
from trainwright.model.build import build_graph
from trainwright.model.load import load_model
from trainwright.plan.expand import expand
from trainwright.plan.strategy import parse_strategy
from trainwright.program.check import check
from trainwright.program.lower import lower
from trainwright.program.setting import Setting
from trainwright.program.tabulate import tabulate
from trainwright.simulate import reference
from trainwright.simulate.simulate import simulate

CASES = (
    ("gpt3-175b", "a100:1024", "dp8 tp8 pp16 mb1 zero0 1f1b", 1024),
    ("gpt3-1.3b", "a100:32", "dp2 tp16 mb4 zero0", 8),  # 24 layers
    ("gpt3-1.3b", "a100:32", "dp4 tp4 pp2 mb1 zero1 1f1b", 64),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5, help="runs, of which the fastest counts")
    parser.add_argument("--smallest", action="store_true", help="only the case with the fewest tasks")
    options = parser.parse_args()
    for model, cluster, text, batch in CASES[1:2] if options.smallest else CASES:
        report_case(model, cluster, text, batch, options.repeat)
    return 0


def report_case(model: str, cluster: str, text: str, batch: int, repeat: int) -> None:
    """Print the times of one case."""
    graph, found, constants = build_graph(load_model(model)), load_cluster(cluster), load_constants()
    setting = Setting(
        graph=graph, cluster=found, stack=constants.stack("megatron-core"),
        efficiency=constants.efficiency(found.device), seq=2048,
    )  # fmt: skip
    strategy = parse_strategy(text)
    plan = expand(strategy, graph, batch)
    program = lower(setting, plan)
    table = tabulate(program)
    simulate(table)
    steps: dict[str, Callable[[], object]] = {
        "expand": lambda: expand(strategy, graph, batch),
        "lower": lambda: lower(setting, plan),
        "check": lambda: check(program),
        "tabulate": lambda: tabulate(program),
        "simulate": lambda: simulate(table),
    }
    seconds = {name: fastest_s(run, repeat) for name, run in steps.items()}
    small = tabulate(lower(setting, expand(strategy, graph, batch // max(plan.microbatches // 4, 1))))
    plain_s = fastest_s(lambda: reference.run(small), 1) * len(table) / len(small)
    total = sum(seconds.values())
    compiled = total - seconds["tabulate"] - seconds["simulate"]
    print(f"{model} on {cluster}, {text}: {len(table):,} tasks")
    print("  " + ", ".join(f"{name} {each:.3f} s" for name, each in seconds.items()))
    print(f"  plan to timeline {total:.2f} s; plan, lower, check {compiled:.2f} s")
    print(f"  plain simulation alone {plain_s:.1f} s: {plain_s / total:.0f} times the whole way")


def fastest_s(run: Callable[[], object], repeat: int) -> float:
    """The shortest processor time of some runs."""
    best = float("inf")
    for _ in range(repeat):
        start_s = time.process_time()
        run()
        best = min(best, time.process_time() - start_s)
    return best


if __name__ == "__main__":
    raise SystemExit(main())
