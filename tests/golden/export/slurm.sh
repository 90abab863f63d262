#!/usr/bin/env bash
#SBATCH --job-name=trainwright
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
# dp8 tp4 pp2 mb1 zero1 1f1b bf16, a global batch of 64, 64 devices
# sbatch THIS; add #SBATCH --partition, --account and --time as your site asks.
set -euo pipefail

PROGRAM=(
    -m trainwright.cli.main run
    llama3-8b 'dp8 tp4 pp2 mb1 zero1 1f1b bf16'
    --batch 64
    --seq 4096
)
if (( $# )); then
    PROGRAM=("$@")
fi

nodes=$(scontrol show hostnames "${SLURM_JOB_NODELIST}")
MASTER_ADDR=${nodes%%$'\n'*}
MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
export MASTER_ADDR MASTER_PORT

# The processes of a node are as many as its devices; the job's id names the meeting.
srun --kill-on-bad-exit=1 torchrun \
    --nnodes=8 \
    --nproc-per-node=8 \
    --rdzv-id="${SLURM_JOB_ID}" \
    --rdzv-backend=c10d \
    --rdzv-endpoint="${MASTER_ADDR}:${MASTER_PORT}" \
    "${PROGRAM[@]}"
