"""The command line: one command per file, imported when it is asked for."""

import argparse
import importlib
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from trainwright.errors import InfeasiblePlan, TrainwrightError, one_line

COMMANDS = {
    "plan": "the best strategies for a model on a cluster, with time, memory, cost, and what limits them",
    "simulate": "one plan in detail: every task of a step, its memory, its communication, its schedule drawn",
    "profile": "measure this machine: kernels and collectives, as a cluster for plan and simulate",
    "run": "train a model under a plan on torch.distributed processes, here or under torchrun",
    "compare": "a predicted and a measured step side by side, and what makes the difference",
    "sweep": "a design space: the best strategy of each cluster, model and knob along its axes, as a dataset",
    "calibrate": "a device's efficiencies refined by a trace of PyTorch's profiler",
    "advise": "how good a configuration of Megatron-LM, torchtitan or DeepSpeed is, and what to change in it",
    "export": "a plan for the tool that runs it: megatron, torchtitan, deepspeed, slurm, chakra, and others",
    "study": "published comparisons, run anew by simulation",
    "catalog": "the devices, networks, models and stacks that are known, and from where",
    "serve": "the planner in a browser, on this machine",
    "validate": "predicted beside measured for a table of real runs",
}


_ELSEWHERE = {"serve": "trainwright.web.serve"}  # modules of commands that are not in this package


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line and exit code 1, like every other bad input."""

    def error(self, message: str) -> NoReturn:
        print(f"trainwright: {one_line(message)}", file=sys.stderr)
        raise SystemExit(1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code: 0, 1 for bad input, 2 if nothing is feasible, 130 if interrupted."""
    try:
        code = _run(sys.argv[1:] if arguments is None else list(arguments))
        sys.stdout.flush()
        return code
    except InfeasiblePlan as error:
        return _fail(error, 2)
    except TrainwrightError as error:
        return _fail(error, 1)
    except KeyboardInterrupt:
        print("trainwright: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _fail(error: TrainwrightError, code: int) -> int:
    print(f"trainwright: {error}", file=sys.stderr)
    return code


def _run(arguments: Sequence[str]) -> int:
    name = next((each for each in arguments if not each.startswith("-")), "")
    parser = _Parser(prog="trainwright", description="How to train this model on that cluster.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {_version()}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    for each, help_text in COMMANDS.items():
        description = help_text[0].upper() + help_text[1:] + "."
        command = commands.add_parser(each, help=help_text, description=description)
        if each == name:  # only the options of the command that was asked for
            _module(each).add_arguments(command)
    options = parser.parse_args(arguments)
    options.asked = shlex.join(["trainwright", *arguments])
    return int(_module(options.command).run(options))


def _module(command: str) -> Any:
    return importlib.import_module(_ELSEWHERE.get(command, f"trainwright.cli.{command}"))


def _version() -> str:
    from trainwright import __version__

    return __version__


if __name__ == "__main__":
    raise SystemExit(main())
