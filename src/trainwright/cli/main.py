"""The command line: one command per file, imported when it is asked for."""

import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress

from trainwright.cli.command_parser import CommandParser, command_module
from trainwright.cli.streams import drop_output, output_failure, prepare_streams
from trainwright.errors import BadInput, InfeasiblePlan, TrainwrightError, UnknownName

NO_ROOM = "there is not enough memory for this"

COMMANDS = {
    "plan": "the best strategies for a model on a cluster, with time, memory, cost, and what limits them",
    "simulate": "one plan in detail: every task of a step, its memory, its communication, its schedule drawn",
    "profile": "measure this machine: kernels and collectives, as a cluster for plan and simulate",
    "run": "train a model under a plan on torch.distributed processes, here or under torchrun",
    "compare": "a predicted and a measured step side by side, and what makes the difference",
    "sweep": "a design space: the best strategy of each cluster, model and knob along its axes, as a dataset",
    "calibrate": "a device's efficiencies refined by a trace of PyTorch's profiler",
    "advise": "how good a configuration of Megatron-LM, torchtitan or others is, and what to change in it",
    "export": "a plan for the tool that runs it: megatron, torchtitan, deepspeed, slurm, chakra, and others",
    "study": "published comparisons, run anew by simulation",
    "catalog": "the devices, networks, models and stacks that are known, and from where",
    "serve": "the planner in a browser, on this machine",
    "validate": "predicted beside measured for a table of real runs",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code: 0, 1 for bad input, 2 if nothing is feasible, 130 if interrupted."""
    try:
        prepare_streams()
        return _run_to_end(sys.argv[1:] if arguments is None else list(arguments))
    except InfeasiblePlan as error:
        return _fail(error, 2)
    except TrainwrightError as error:
        return _fail(error, 1)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:
        drop_output()
        return 141
    except OSError as error:
        return _fail(output_failure(error), 1)
    except (MemoryError, RecursionError) as error:
        return _fail(f"{NO_ROOM} ({type(error).__name__}); ask for less", 1)


def _fail(error: TrainwrightError | str, code: int) -> int:
    with suppress(OSError):  # nobody hears it where standard error is full, but the code says it too
        print(f"trainwright: {error}", file=sys.stderr)
    return code


def _run_to_end(arguments: Sequence[str]) -> int:
    """Run a command until all that it prints has been taken."""
    try:
        return _run(arguments)
    finally:
        sys.stdout.flush()


def _run(arguments: Sequence[str]) -> int:
    name = arguments[0] if arguments else ""
    if name not in COMMANDS:
        if name and not name.startswith("-"):
            raise UnknownName("command", name, COMMANDS)
        _front_parser().parse_options(arguments)  # leaves with help or the version, or raises
        raise BadInput("argument", name, "comes before the command", "see trainwright --help")
    parser = CommandParser(prog=f"trainwright {name}", description=_described(COMMANDS[name]))
    module = command_module(name)  # only the options of the command that was asked for
    module.add_arguments(parser)
    options = parser.parse_options(arguments[1:])
    options.asked = shlex.join(["trainwright", *arguments])
    return int(module.run(options))


def _front_parser() -> CommandParser:
    """What `trainwright --help` lists: the commands, and nothing of their options."""
    parser = CommandParser(prog="trainwright", description="How to train this model on that cluster.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {_version()}")
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=CommandParser
    )
    for each, help_text in COMMANDS.items():
        commands.add_parser(each, help=help_text, description=_described(help_text))
    return parser


def _described(help_text: str) -> str:
    return help_text[0].upper() + help_text[1:] + "."


def _version() -> str:
    from trainwright import __version__

    return __version__


if __name__ == "__main__":
    raise SystemExit(main())
