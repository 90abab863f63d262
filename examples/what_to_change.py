"""How good is what runs today, and what should be changed? From a line of Megatron-LM's arguments.

python examples/what_to_change.py
"""

import tempfile
from pathlib import Path

import trainwright

TODAY = """
pretrain_gpt.py --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
    --group-query-attention --num-query-groups 8 --seq-length 8192 --vocab-size 128256 --swiglu
    --untie-embeddings-and-output-weights --position-embedding-type rope --normalization RMSNorm
    --disable-bias-linear --hidden-dropout 0 --attention-dropout 0
    --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2
    --micro-batch-size 1 --global-batch-size 512
    --use-distributed-optimizer --bf16 --recompute-granularity full --recompute-method uniform
    --recompute-num-layers 1
"""

with tempfile.TemporaryDirectory() as folder:
    config = Path(folder) / "arguments.txt"
    config.write_text(TODAY)
    advice = trainwright.advise(str(config), "h100:64")

print(f"today: {advice.today.strategy}, {advice.today.step_s:.2f} s a step")
for change in advice.steps:
    print(f"{change.gain:+7.1%}  {change.idea}: {change.after.strategy}")
if advice.best is not None:
    print(f"{advice.today.step_s / advice.best.step_s - 1:+7.1%}  best of all: {advice.best.strategy}")
