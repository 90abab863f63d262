"""Errors say thing, value, rule and remedy in one line, and carry them as fields."""

import pytest

from trainwright.errors import BadInput, InfeasiblePlan, TrainwrightError, UnknownName


def test_a_bad_input_reads_as_one_line() -> None:
    error = BadInput("cluster", "h100", "has no count of devices", 'write it like "h100:512"')
    assert str(error) == 'cluster "h100": has no count of devices; write it like "h100:512"'


def test_a_bad_input_carries_its_parts() -> None:
    error = BadInput("strategy zero", 4, "stages are 0, 1, 2 and 3", "use one of them")
    assert (error.thing, error.value, error.rule, error.remedy) == (
        "strategy zero", 4, "stages are 0, 1, 2 and 3", "use one of them",
    )  # fmt: skip
    assert str(error).startswith("strategy zero 4: ")  # numbers are not quoted


def test_an_unknown_name_suggests_the_nearest() -> None:
    error = UnknownName("model", "lama3-8b", ["llama3-8b", "llama3-70b", "gpt2"])
    assert str(error) == 'model "lama3-8b": no such name; did you mean "llama3-8b"?'


def test_a_name_like_no_other_lists_what_is_known() -> None:
    assert str(UnknownName("device", "zzzzzz", ["h100", "a100"])).endswith("known: a100, h100")


def test_a_long_list_of_known_names_is_cut() -> None:
    remedy = UnknownName("device", "????", [f"device-{i:02}" for i in range(50)]).remedy
    assert remedy.count(",") == 11  # twelve names


@pytest.mark.parametrize("kind", [BadInput, UnknownName, InfeasiblePlan])
def test_every_error_of_a_user_is_caught_as_one(kind: type[Exception]) -> None:
    assert issubclass(kind, TrainwrightError)


def test_an_infeasible_plan_is_not_a_bad_input() -> None:
    assert not issubclass(InfeasiblePlan, BadInput)  # they leave with different exit codes


def test_a_message_stays_on_one_line_whatever_it_repeats() -> None:
    assert str(BadInput("model", "a\nb\x1b[0m", "no such\r name", "ok")) == (
        'model "a\\nb\\x1b[0m": no such\\r name; ok'
    )
    assert "\n" not in str(InfeasiblePlan("a\nb"))


def test_a_long_value_is_cut() -> None:
    assert len(str(BadInput("model", "a" * 5000, "is too long", "use a shorter one"))) < 300


def test_a_number_that_python_does_not_write_is_told_in_words() -> None:
    assert "a number of thousands of digits" in str(BadInput("count", 10**5000, "is too large", "correct it"))
