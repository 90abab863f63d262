"""Job scripts: how the processes of a plan are started and find each other."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainwright.errors import BadInput
from trainwright.export.flags import comment, render_array, render_command, torchrun_words
from trainwright.export.handover import Handover

_OWN = ("-m", "trainwright.cli.main", "run")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A program on some nodes, with so many processes on each; no program is the caller's to state."""

    nodes: int
    per_node: int
    program: tuple[tuple[str, ...], ...] = ()  # words that belong together


def launch_of(handover: Handover) -> Launch:
    """Our own runtime under a plan; without a model, whatever the script is started with."""
    program: tuple[tuple[str, ...], ...] = ()
    if handover.model:
        program = own_program(handover.model, str(handover.strategy), handover.global_batch, handover.seq)
    return Launch(nodes=handover.nodes, per_node=handover.processes_per_node, program=program)


def own_program(model: str, plan: str, batch: int | None, seq: int | None) -> tuple[tuple[str, ...], ...]:
    """What a process of our own runtime runs; a plan file states its batch itself."""
    stated = (("--batch", str(batch)),) if batch else ()
    return (_OWN, (model, plan), *stated, *((("--seq", str(seq)),) if seq else ()))


def render_torchrun(launch: Launch, notes: Sequence[str]) -> str:
    """A script for each node."""
    if not launch.program:
        raise BadInput(
            "torchrun", "no model", "what is run under it is not known", "state --model, or use --to slurm"
        )
    return "".join(
        [
            "#!/usr/bin/env bash\n",
            comment([*notes, "Run it on every node, with NODE_RANK, MASTER_ADDR and MASTER_PORT set."]),
            "set -euo pipefail\n",
            ': "${NODE_RANK:=0}" "${MASTER_ADDR:=localhost}" "${MASTER_PORT:=29500}"\n\n',
            render_array("PROGRAM", launch.program),
            "\n",
            render_command(torchrun_words(launch.nodes, launch.per_node, ['"${PROGRAM[@]}"', '"$@"'])),
        ]
    )


def render_slurm(launch: Launch, notes: Sequence[str]) -> str:
    """A job script: one task on each node, which starts its processes; they meet on the first node."""
    return "".join(
        [
            "#!/usr/bin/env bash\n",
            "#SBATCH --job-name=trainwright\n",
            f"#SBATCH --nodes={launch.nodes}\n",
            "#SBATCH --ntasks-per-node=1\n",
            f"#SBATCH --gpus-per-node={launch.per_node}\n",
            "#SBATCH --exclusive\n",
            comment([*notes, *_usage(launch)]),
            "set -euo pipefail\n\n",
            render_array("PROGRAM", launch.program) if launch.program else 'PROGRAM=("$@")\n',
            'if (( $# )); then\n    PROGRAM=("$@")\nfi\n' if launch.program else _NEEDED,
            "\n",
            'nodes=$(scontrol show hostnames "${SLURM_JOB_NODELIST}")\n',
            "MASTER_ADDR=${nodes%%$'\\n'*}\n",
            "MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))\n",
            "export MASTER_ADDR MASTER_PORT\n\n",
            "# The processes of a node are as many as its devices; the job's id names the meeting.\n",
            "srun --kill-on-bad-exit=1 " + render_command(_rendezvous(launch)),
        ]
    )


_NEEDED = """if (( $# == 0 )); then
    echo "state what to run: sbatch $0 train.py --flags" >&2
    exit 1
fi
"""


def _usage(launch: Launch) -> list[str]:
    what = "sbatch THIS" if launch.program else "sbatch THIS train.py --flags"
    return [f"{what}; add #SBATCH --partition, --account and --time as your site asks."]


def _rendezvous(launch: Launch) -> list[str]:
    return [
        "torchrun", f"--nnodes={launch.nodes}", f"--nproc-per-node={launch.per_node}",
        '--rdzv-id="${SLURM_JOB_ID}"', "--rdzv-backend=c10d",
        '--rdzv-endpoint="${MASTER_ADDR}:${MASTER_PORT}"', '"${PROGRAM[@]}"',
    ]  # fmt: skip
