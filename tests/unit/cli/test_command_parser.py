"""The parser of commands: what was given is known, and mistakes name the nearest option."""

import argparse

import pytest

from trainwright.cli.command_parser import CommandParser
from trainwright.cli.main import main
from trainwright.cli.refusal import refuse_given, refuse_others
from trainwright.errors import BadInput, TrainwrightError


def parser() -> CommandParser:
    built = CommandParser(prog="trainwright test", add_help=False)
    built.add_argument("model")
    built.add_argument("rest", nargs="*")
    built.add_argument("--batch", default="8")
    built.add_argument("--fix", action="append", default=[])
    built.add_argument("--quiet", action="store_true")
    return built


def test_what_is_given_is_known_also_if_it_is_the_default() -> None:
    options = parser().parse_options(["gpt2", "--batch", "8"])
    assert options.given == {"batch"}
    assert (options.model, options.rest, options.fix, options.quiet) == ("gpt2", [], [], False)
    assert parser().parse_options(["gpt2"]).batch == "8"


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(BadInput, match=r'"--batchsize".*did you mean --batch\?'):
        parser().parse_options(["gpt2", "--batchsize", "3"])
    with pytest.raises(BadInput, match="see trainwright test --help"):
        parser().parse_options(["gpt2", "--zzz"])


def test_a_typing_error_is_told_before_what_is_missing() -> None:
    with pytest.raises(BadInput, match="did you mean --quiet"):
        parser().parse_options(["--quite"])


def test_an_empty_value_and_a_second_one_are_errors() -> None:
    with pytest.raises(BadInput, match="--batch: is empty"):
        parser().parse_options(["gpt2", "--batch", ""])
    with pytest.raises(BadInput, match=r"--batch .*is stated twice"):
        parser().parse_options(["gpt2", "--batch", "1", "--batch", "2"])
    assert parser().parse_options(["gpt2", "--fix", "a", "--fix", "b"]).fix == ["a", "b"]


def test_a_given_option_that_does_not_apply_is_refused_by_name() -> None:
    options = argparse.Namespace(batch="8", quiet=True, given=frozenset({"batch", "quiet"}))
    with pytest.raises(BadInput, match="--quiet: is for terminals; leave it out"):
        refuse_given(options, ("quiet",), "is for terminals")
    with pytest.raises(BadInput, match='--batch "8": is not taken'):
        refuse_others(options, ("quiet",), "is not taken")
    refuse_others(options, ("quiet", "batch"), "is not taken")


def test_an_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plaan"]) == 1
    assert 'did you mean "plan"?' in capsys.readouterr().err


def test_errors_of_argparse_are_ours() -> None:
    with pytest.raises(TrainwrightError, match="required"):
        parser().parse_options([])
