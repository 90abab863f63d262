"""The best plan for a model on a cluster, handed to the tools that run it.

python examples/plan_and_export.py [MODEL] [CLUSTER]
"""

import sys

import trainwright

model, cluster = sys.argv[1:3] if len(sys.argv) > 2 else ("llama3-8b", "h100:64")
# Stated, since the job of `slurm` runs under our own runtime, which keeps gradients in fp32 only.
plans = trainwright.plan(model, cluster, batch=512, top=5, grad_dtype="fp32")
print(plans)
for line in plans.notes[:2]:
    print(" ", line)
print(plans.to_dataframe()[["strategy", "step_s", "mfu", "total_bytes"]])

for target in ("megatron", "slurm"):
    print(f"\n--- {target}\n{trainwright.export(plans, target, model=model, cluster=cluster)}")
