"""`trainwright run`: train a model under a plan."""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.api.subject_fields import COST_HELP
from trainwright.cli.needs_torch import check_torch
from trainwright.cli.refusal import refuse_given
from trainwright.cli.run_options import (
    count_of,
    number_of,
    parse_keeping,
    parse_recipe,
    weights_file,
    whole_of,
)
from trainwright.errors import BadInput

if TYPE_CHECKING:
    from trainwright.runtime.training import Training


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a catalog name, a Hugging Face config.json, a TOML file, or a module of your own as "
        "package.module:factory or path/to/file.py:factory",
    )
    parser.add_argument(
        "plan",
        metavar="PLAN",
        nargs="+",
        help='a strategy ("dp2 tp2"), a plan file, or a plan of the zoo ("co-shard tp=2", with --processes)',
    )
    _add_data(parser)
    _add_recipe(parser)
    _add_keeping(parser)
    parser.add_argument("--processes", metavar="N", help="processes, for plans of the zoo")
    parser.add_argument(
        "--algorithm",
        metavar="TEXT",
        help='how the processes of "dpN" learn (a plan file of islands has its own): "diloco every=50", '
        '"ist coverage=0.5", "local-sgd", '
        '"power-sgd", "compressed by=top-k", "diana", "ef21", "marina", "streaming-diloco" or "ddp" (fp32)',
    )
    parser.add_argument(
        "--no-check",
        action="store_true",
        help="skip the comparison of a module of your own with one process before the first step",
    )
    parser.add_argument("--restarts", default="3", metavar="N", help="how often to start again (default: 3)")
    parser.add_argument(
        "--elastic",
        action="store_true",
        help="go on with the processes that are left, under another plan; with --algorithm, replace none",
    )
    parser.add_argument(
        "--timeout", default="300", metavar="N", help="seconds to wait for another process (default: 300)"
    )


def _add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data", default="built-in", metavar="FILE", help="tokens, .bin or .npy (default: a short text)"
    )
    parser.add_argument(
        "--batch", metavar="N", help="sequences per step (default: 8; a plan file has its own)"
    )
    parser.add_argument(
        "--seq",
        metavar="N",
        help="tokens per sequence (default: the model's, at most 256); of encoder-decoders, those that the "
        "encoder reads, and as many after them, which the decoder foretells",
    )
    parser.add_argument("--seed", default="0", metavar="N", help="of first weights and data order")
    parser.add_argument("--from", dest="start", metavar="FILE", help="first weights, .safetensors or .pt")


def _add_recipe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", default="100", metavar="N", help="steps in all (default: 100)")
    parser.add_argument("--rate", default="3e-4", metavar="X", help="highest learning rate (default: 3e-4)")
    parser.add_argument("--warmup", default="0", metavar="N", help="steps until it is reached (default: 0)")
    parser.add_argument(
        "--clip", default="1", metavar="X", help="most norm of gradients (0: any; default: 1)"
    )
    parser.add_argument(
        "--schedule", default="cosine", metavar="NAME", help="constant, cosine or linear (default: cosine)"
    )
    parser.add_argument(
        "--precision", metavar="NAME", help="fp32, bf16 or fp16 (default: the plan's; fp32 without a GPU)"
    )


def _add_keeping(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--checkpoint", metavar="DIR", help="where checkpoints go; one is written at the end")
    parser.add_argument("--every", default="0", metavar="N", help="steps between checkpoints")
    parser.add_argument(
        "--keep", default="3", metavar="N", help="checkpoints to keep, 2 or more (default: 3)"
    )
    parser.add_argument("--resume", action="store_true", help="go on from the newest intact checkpoint")
    parser.add_argument("--evaluate-every", default="0", metavar="N", help="steps between evaluations")
    parser.add_argument("--metrics", metavar="FILE", help="numbers of every step as lines of JSON")
    parser.add_argument("--tensorboard", metavar="DIR", help="the same for TensorBoard")
    parser.add_argument("--record", metavar="FILE", help="a trace of the third step, which Perfetto opens")
    usual = "a short profile of this machine; for the prediction beside --record, CPUs only"
    parser.add_argument("--cost", metavar="SOURCE", help=COST_HELP.format(usual))
    parser.add_argument("--export", metavar="FILE", help="the weights at the end, .safetensors or .pt")


def run(options: argparse.Namespace) -> int:
    """Be a process of the run, if torchrun started this one; else start all of them."""
    check_torch("run")
    from trainwright.cli.run_algorithm import has_workers, run_algorithm

    is_rank = "RANK" in os.environ and "WORLD_SIZE" in os.environ
    if has_workers(options):
        if is_rank:
            raise BadInput(
                "--algorithm", options.algorithm or " ".join(options.plan),
                "starts its workers itself, and torchrun has started this process as one of several",
                "call trainwright run without torchrun, on one machine",
            )  # fmt: skip
        return run_algorithm(options)
    if is_rank:
        from trainwright.runtime.process import restart_count

        rule, remedy = "is for processes that this command starts", "use torchrun's --max-restarts"
        refuse_given(options, ("restarts",), rule, remedy)
        enter(options, restarted=restart_count() > 0)
        return 0
    return _launch(options)


def enter(options: argparse.Namespace, restarted: bool) -> None:
    """Be one process of the run."""
    from trainwright.runtime.process import end_process, run_process

    code = run_process(lambda count: _parse(options, count), restarted=restarted)
    if code:
        end_process(code)


def _launch(options: argparse.Namespace) -> int:
    from trainwright.runtime.launch import TRACING, Launch, torchrun_line
    from trainwright.runtime.training import check_shelf

    training, restarts = _parse(options, None), count_of(options, "restarts")
    check_shelf(training)
    count = training.plan.devices
    print(f"{training.graph.name} under {training.plan.name} on {count} processes")
    print(f"On many machines: {torchrun_line(sys.argv[1:], count, restarts)}", flush=True)

    def left(number: int) -> int:
        return _parse(options, number).plan.devices if options.elastic else count

    preloaded = TRACING if ":" in options.model else ()
    launch = Launch(enter=enter, arguments=(options,), restarts=restarts, left=left, preloaded=preloaded)
    return launch.run(count)


def _parse(options: argparse.Namespace, count: int | None) -> "Training":
    """The run that the options describe; on so many processes, if that is given."""
    from trainwright.cli.run_model import parse_model
    from trainwright.cli.run_plan import parse_plan, parse_precision
    from trainwright.runtime.samples import Samples
    from trainwright.runtime.tokens import check_tokens, load_tokens
    from trainwright.runtime.training import Training

    seed = count_of(options, "seed")
    seq = whole_of(options, "seq") if options.seq else None
    start = weights_file(options, "start", "--from")
    learner = parse_model(options.model, seq, seed, start, parse_precision(options))
    if learner.alone is None:
        refuse_given(options, ("no_check",), "is of a module of your own; other models have no such check")
    plan = parse_plan(options, learner.graph, learner.seq, count)
    if learner.for_batch is not None:
        learner = learner.for_batch(plan.batch)
        plan = parse_plan(options, learner.graph, learner.seq, count)
    _check_cost(options, plan.devices)
    tokens = load_tokens(options.data)
    check_tokens(tokens, learner.vocab)
    return Training(
        learner=learner, plan=plan, seed=seed,
        samples=Samples(
            tokens=tokens, vocab=learner.vocab, seq=learner.seq, batch=plan.batch * plan.microbatches,
            sequences=learner.sequences, seed=seed,
        ),
        recipe=parse_recipe(options),
        keeping=parse_keeping(options), evaluate_every=count_of(options, "evaluate_every"),
        timeout_s=number_of(options, "timeout"), check=not options.no_check,
        replan=lambda graph: parse_plan(options, graph, learner.seq, count),
    )  # fmt: skip


def _check_cost(options: argparse.Namespace, processes: int) -> None:
    """Raise, before anything runs, if the step's prediction cannot rest on what `--cost` names."""
    from trainwright.cost.source import parse_cost
    from trainwright.runtime.machine import profiled_source
    from trainwright.runtime.process import has_gpu

    if options.cost is None:
        return
    if not options.record:
        raise BadInput(
            "--cost", options.cost, "is for the prediction of a recorded step", "add --record FILE"
        )
    _, file = parse_cost(options.cost)
    if not file and has_gpu():
        rule = "names no file, and a run measures by itself only CPUs"
        raise BadInput("--cost", options.cost, rule, "write profiled:FILE or projected:FILE")
    if file:
        profiled_source(processes, Path(file), options.cost)
