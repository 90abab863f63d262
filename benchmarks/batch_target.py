"""What a batch target costs: processor time of choosing a batch, beside that of the search at the batch."""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import time
from dataclasses import replace

from trainwright.cluster.load import load_cluster
from trainwright.model.load import load_model
from trainwright.search.batch_choice import choose_batch
from trainwright.search.batch_target import build_target
from trainwright.search.find import find_plans
from trainwright.sweep.ready import build_question
from trainwright.sweep.types import Setting

CASES = (
    ("llama3-8b", "h100:8", 8192, 2.0**22),
    ("llama2-7b", "a100:128", 4096, 4e6),
    ("llama3-70b", "h100:512", 8192, 16e6),
    ("llama3-405b", "h100:6144", 8192, 2.0**24),
    ("deepseek-v3", "b200:2048", 4096, 63e6),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3, help="runs, of which the fastest counts")
    parser.add_argument("--cases", type=int, default=len(CASES), help="how many, the smallest first")
    options = parser.parse_args()

    print(f"{'case':28} {'batch':>7} {'choose s':>9} {'search s':>9} {'ratio':>6}")
    for model, cluster, seq, tokens in CASES[: options.cases]:
        setting = Setting(model=load_model(model), cluster=load_cluster(cluster), seq=seq, batch=1)
        question = build_question(setting, "time")[0]
        target = build_target(tokens, seq, 0.03, f"{tokens:,.0f} tokens", "target")
        choose_s = search_s = float("inf")
        for _ in range(options.repeat):
            start_s = time.process_time()
            batch = choose_batch(question, target)
            middle_s = time.process_time()
            find_plans(replace(question, batches=(batch,)))
            choose_s = min(choose_s, middle_s - start_s)
            search_s = min(search_s, time.process_time() - middle_s)
        ratio = (choose_s + search_s) / search_s
        print(f"{model + ' ' + cluster:28} {batch:7} {choose_s:9.3f} {search_s:9.3f} {ratio:6.2f}")


if __name__ == "__main__":
    main()
