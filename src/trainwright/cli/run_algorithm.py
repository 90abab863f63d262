"""`trainwright run --algorithm`: train by an algorithm whose workers talk rarely, or say less."""

import argparse
import re
import sys
from typing import TYPE_CHECKING

from trainwright.errors import BadInput

if TYPE_CHECKING:
    from trainwright.runtime.apart.job import Job

_BATCH = 8


def run_algorithm(options: argparse.Namespace) -> int:
    """Start the workers of the run, and wait for their end."""
    from trainwright.algorithm.meeting import survives
    from trainwright.algorithm.registry import render_algorithm
    from trainwright.cli.run_options import count_of
    from trainwright.runtime.apart.job import check_job_shelf
    from trainwright.runtime.apart.supervise import Supervisor

    job = parse_job(options)
    check_job_shelf(job)
    name = job.network.learner.graph.name
    print(f"{name} by {render_algorithm(job.algorithm)} on {job.workers} workers", flush=True)
    supervisor = Supervisor(
        enter=enter_worker, arguments=(options,), restarts=count_of(options, "restarts"),
        survives=survives(job.algorithm),
    )  # fmt: skip
    return supervisor.run(job.workers)


def enter_worker(options: argparse.Namespace, name: int, port: int, group: int, restarted: bool) -> None:
    """Be one worker of the run."""
    from trainwright.runtime.apart.worker import run_worker

    sys.exit(run_worker(lambda: parse_job(options), name, port, group, restarted=restarted))


def parse_job(options: argparse.Namespace) -> "Job":
    """The run that the options describe."""
    from trainwright.algorithm.registry import parse_algorithm
    from trainwright.cli.run_model import parse_model
    from trainwright.cli.run_options import count_of, number_of, parse_keeping, parse_recipe, weights_file
    from trainwright.cli.run_options import whole_of as whole
    from trainwright.runtime.apart.job import Job
    from trainwright.runtime.apart.network import LearnerNetwork
    from trainwright.runtime.samples import Samples
    from trainwright.runtime.tokens import check_tokens, load_tokens

    _check(options)
    seed, tokens = count_of(options, "seed"), load_tokens(options.data)
    start = weights_file(options, "start", "--from")
    learner = parse_model(options.model, whole(options, "seq") if options.seq else None, seed, start, "fp32")
    check_tokens(tokens, learner.vocab)
    return Job(
        network=LearnerNetwork(learner=learner), algorithm=parse_algorithm(options.algorithm),
        workers=_workers(" ".join(options.plan)), seed=seed, recipe=parse_recipe(options),
        samples=Samples(
            tokens=tokens, vocab=learner.vocab, seq=learner.seq, sequences=learner.sequences, seed=seed,
            batch=whole(options, "batch") if options.batch else _BATCH,
        ),
        keeping=parse_keeping(options), evaluate_every=count_of(options, "evaluate_every"),
        timeout_s=number_of(options, "timeout"),
    )  # fmt: skip


def _workers(plan: str) -> int:
    """How many workers a plan has; all of them see different samples."""
    found = re.fullmatch(r"dp([1-9]\d{0,3})", plan)
    if not found:
        rule = "is not data parallelism alone, which is all that --algorithm is for"
        raise BadInput("plan", plan, rule, 'write it like "dp4"')
    return int(found[1])


def _check(options: argparse.Namespace) -> None:
    """Raise for what a run under an algorithm does not have."""
    if options.precision not in (None, "fp32"):
        raise BadInput("--precision", options.precision, "is not fp32", "leave out --algorithm, or this")
    for name in ("record", "elastic", "processes"):
        if getattr(options, name):
            rule = "is for runs without --algorithm"
            raise BadInput(f"--{name}", str(getattr(options, name)), rule, "leave it out")
