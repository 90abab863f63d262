"""One plan, task by task: what each cause adds, the longest tasks, and a trace for Perfetto.

python examples/where_the_time_goes.py [TRACE]
"""

import sys

import trainwright

step = trainwright.simulate("gpt3-1.3b", "a100:8", "dp2 tp2 pp2 mb1 zero1 1f1b", batch=32, seq=2048)
print(step, "fits" if step.fits else "does not fit")
for cause, spent in step.account.time_s.items():
    print(f"  {cause:10} {spent.mean_s * 1e3:8.1f} ms on the mean device")

tasks = step.to_dataframe(library="pandas") if "pandas" in sys.argv else step.to_dataframe()
print(tasks.head(5))
traces = [each for each in sys.argv[1:] if each.endswith(".json")]
for path in traces:
    step.save_trace(path)
    print(f"{path}: open it at ui.perfetto.dev")
