"""Processor time of `trainwright plan`: DeepSeek-V3 beside Llama 3 405B, and this tree beside another.

DeepSeek-V3 has about ten times the strategies of Llama 3 405B on the same devices, and must take at most
twice the time. With `--against`, a set of questions is timed in another checkout too, and may take at most
1.3 times as long here. A question is asked once before it is timed, so that no import counts.
"""

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

MOST_TIMES = 2.0  # the time of Llama 3 405B on as many devices
MOST_GROWTH = 1.3  # the time in the other checkout
SOURCES = Path(__file__).parents[1] / "src"
QUESTIONS = (
    ("llama3-8b", "h100:64"),
    ("llama3-70b", "h100:512"),
    ("llama3-405b", "h100:2048"),
    ("llama3-405b", "h100:16384"),
    ("mixtral-8x7b", "h100:64"),
    ("deepseek-v3", "h100:2048"),
    ("deepseek-v3", "h100:16384"),
    ("qwen3-235b", "h100:256"),
    ("gpt3-175b", "a100:1024"),
)
ASK = """
import contextlib, io, sys, time
from trainwright.cli.main import main
repeat, *question = sys.argv[1:]
def seconds():
    start_s = time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["plan", *question]) == 0
    return time.process_time() - start_s
seconds()
print(min(seconds() for _ in range(int(repeat))))
"""


def plan_s(sources: Path, question: tuple[str, str], repeat: int) -> float:
    """Processor seconds of one question in a process of its own, the least of several times."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    printed = subprocess.run(
        [sys.executable, "-c", ASK, str(repeat), *question],
        env=os.environ | threads | {"PYTHONPATH": str(sources)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    return float(printed)


def compare_models(devices: list[int], repeat: int) -> bool:
    """Print the times of both models; whether DeepSeek-V3 takes at most twice as long on all devices."""
    print(f"{'devices':>8} {'llama3-405b s':>14} {'deepseek-v3 s':>14} {'ratio':>6}")
    ratios = []
    for count in devices:
        dense_s, sparse_s = (
            plan_s(SOURCES, (model, f"h100:{count}"), repeat) for model in ("llama3-405b", "deepseek-v3")
        )
        ratios.append(sparse_s / dense_s)
        print(f"{count:8} {dense_s:14.3f} {sparse_s:14.3f} {ratios[-1]:6.2f}")
    return max(ratios) <= MOST_TIMES


def compare_trees(other: Path, repeat: int) -> bool:
    """Print the times in both trees; whether no question takes over 1.3 times as long in this one."""
    print(f"{'question':26} {'there s':>8} {'here s':>8} {'ratio':>6}")
    ratios = []
    for question in QUESTIONS:
        there_s, here_s = (plan_s(sources, question, repeat) for sources in (other / "src", SOURCES))
        ratios.append(here_s / there_s)
        print(f"{' '.join(question):26} {there_s:8.3f} {here_s:8.3f} {ratios[-1]:6.2f}")
    print(f"median ratio {statistics.median(ratios):.2f}, largest {max(ratios):.2f}")
    return max(ratios) <= MOST_GROWTH


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3, help="runs, of which the fastest counts")
    parser.add_argument("--devices", type=int, nargs="+", default=[2048, 16384], help="H100 of both models")
    parser.add_argument("--against", type=Path, help="another checkout, whose times are compared")
    options = parser.parse_args()

    good = compare_models(options.devices, options.repeat)
    if not good:
        print(f"deepseek-v3 takes more than {MOST_TIMES} times as long as llama3-405b", file=sys.stderr)
    if options.against and not compare_trees(options.against, options.repeat):
        print(f"a question takes more than {MOST_GROWTH} times as long as there", file=sys.stderr)
        good = False
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
