"""`trainwright run --algorithm`: train by an algorithm whose workers talk rarely, or say less."""

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.api.named_plan import is_file, load_plan
from trainwright.cli.refusal import refuse_given
from trainwright.errors import BadInput
from trainwright.plan.islands import algorithm_of, is_apart, islands_of

if TYPE_CHECKING:
    from trainwright.algorithm.protocol import Algorithm
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
        timeout_s=job.timeout_s, survives=survives(job.algorithm), replaces=not options.elastic,
    )  # fmt: skip
    return supervisor.run(job.workers)


def enter_worker(options: argparse.Namespace, name: int, port: int, group: int, restarted: bool) -> None:
    """Be one worker of the run."""
    from trainwright.runtime.apart.worker import run_worker

    sys.exit(run_worker(lambda: parse_job(options), name, port, group, restarted=restarted))


def parse_job(options: argparse.Namespace) -> "Job":
    """The run that the options describe."""
    from trainwright.cli.run_model import parse_model
    from trainwright.cli.run_options import count_of, number_of, parse_keeping, parse_recipe, weights_file
    from trainwright.cli.run_options import whole_of as whole
    from trainwright.runtime.apart.job import Job
    from trainwright.runtime.apart.network import LearnerNetwork
    from trainwright.runtime.samples import Samples
    from trainwright.runtime.tokens import check_tokens, load_tokens

    _check(options)
    stated = _stated(options)
    _check_elastic(options, stated.algorithm)
    seed, tokens = count_of(options, "seed"), load_tokens(options.data)
    start = weights_file(options, "start", "--from")
    learner = parse_model(options.model, whole(options, "seq") if options.seq else None, seed, start, "fp32")
    check_tokens(tokens, learner.vocab)
    return Job(
        network=LearnerNetwork(learner=learner), algorithm=stated.algorithm, workers=stated.workers,
         seed=seed, recipe=parse_recipe(options),
        samples=Samples(
            tokens=tokens, vocab=learner.vocab, seq=learner.seq, sequences=learner.sequences, seed=seed,
            batch=stated.batch,
        ),
        keeping=parse_keeping(options), evaluate_every=count_of(options, "evaluate_every"),
        timeout_s=number_of(options, "timeout"),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """How workers learn, how many they are, and the samples of all of them in a step."""

    algorithm: "Algorithm"
    workers: int
    batch: int


def has_workers(options: argparse.Namespace) -> bool:
    """Whether a run is of workers that learn by an algorithm: one is named, or the plan file has islands."""
    text = " ".join(options.plan)
    if options.algorithm is not None:
        return True
    return is_file(text) and is_apart(load_plan(Path(text)))


def _stated(options: argparse.Namespace) -> Stated:
    from trainwright.algorithm.registry import parse_algorithm
    from trainwright.cli.run_options import whole_of

    text = " ".join(options.plan)
    if is_file(text):
        return _of_file(options, text)
    batch = whole_of(options, "batch") if options.batch else _BATCH
    return Stated(algorithm=parse_algorithm(options.algorithm), workers=_workers(text), batch=batch)


def _of_file(options: argparse.Namespace, text: str) -> Stated:
    """What a plan of islands says; each is one process."""
    if options.algorithm is not None and not text.endswith(".json"):
        raise BadInput("--algorithm", options.algorithm, "the plan file has its own", "leave it out")
    plan = load_plan(Path(text), options.algorithm)
    islands = islands_of(plan)
    if plan.devices != 1:
        rule = f"has islands of {plan.devices} devices, and a worker of a run is one process"
        raise BadInput("plan", text, rule, "use a plan whose islands have one device each, like dp1")
    own = plan.batch * plan.microbatches * islands
    if options.batch and options.batch != str(own):
        rule = f"the plan has islands x batch x microbatches = {own}"
        raise BadInput("--batch", options.batch, rule, "leave it out, or change the file")
    return Stated(algorithm=algorithm_of(plan), workers=islands, batch=own)


def _workers(plan: str) -> int:
    """How many workers a plan has; all of them see different samples."""
    found = re.fullmatch(r"dp([1-9]\d{0,3})", plan)
    if not found:
        rule = "is not data parallelism alone, which is all that --algorithm is for"
        raise BadInput("plan", plan, rule, 'write it like "dp4", or name a plan file of islands')
    return int(found[1])


def _check(options: argparse.Namespace) -> None:
    """Raise for what a run under an algorithm does not have."""
    if options.precision not in (None, "fp32"):
        raise BadInput("--precision", options.precision, "is not fp32", "leave out --algorithm, or this")
    refuse_given(
        options, ("record", "cost", "processes", "no_check"), "is for runs without --algorithm or islands"
    )


def _check_elastic(options: argparse.Namespace, algorithm: "Algorithm") -> None:
    """Raise if workers are to go on without one that they cannot do without."""
    from trainwright.algorithm.meeting import survives
    from trainwright.algorithm.registry import render_algorithm

    if options.elastic and not survives(algorithm):
        rule, remedy = "starts all workers again when one is gone", "leave it out, or use diloco or ist"
        raise BadInput("--elastic", render_algorithm(algorithm), rule, remedy)
