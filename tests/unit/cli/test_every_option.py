"""Every option of every command changes the answer, or is an error that names it: none is ignored."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")
pytest.importorskip("matplotlib")
pytest.importorskip("fastapi")

from tests.option_files import prepare_files
from tests.option_modes import PLANS, RUNS, SIMULATIONS
from tests.option_modes_study import OTHERS, STUDIES, SWEEPS
from tests.option_modes_tools import ADVICE, EXPORTS
from tests.options import CommandMode, check_option, every_option, is_honoured
from trainwright.cli.main import COMMANDS
from trainwright.export.targets import TARGETS
from trainwright.study import STUDIES as STUDY_NAMES

MODES = (*PLANS, *SIMULATIONS, *ADVICE, *EXPORTS, *RUNS, *SWEEPS, *STUDIES, *OTHERS)


@pytest.fixture(scope="module", autouse=True)
def files() -> None:
    """What the commands read."""
    prepare_files()


def test_every_command_study_and_target_has_a_mode() -> None:
    assert {mode.words[0] for mode in MODES} == set(COMMANDS)
    assert {mode.words[1] for mode in STUDIES} == set(STUDY_NAMES)
    written = {mode.words[mode.words.index("--to") + 1] for mode in EXPORTS}
    assert written == {*TARGETS, "chakra"}


@pytest.mark.parametrize(
    ("mode", "flag"), [pytest.param(*each, id=f"{each[0]}{each[1]}") for each in every_option(MODES)]
)
def test_an_option_is_honoured_or_refused(mode: CommandMode, flag: str) -> None:
    check_option(mode, flag)


@pytest.mark.parametrize("command", sorted({mode.command for mode in MODES}), ids=" ".join)
def test_every_option_of_a_command_is_honoured_in_a_mode(command: tuple[str, ...]) -> None:
    modes = [mode for mode in MODES if mode.command == command]
    refused = [flag for flag in modes[0].actions if not any(is_honoured(mode, flag) for mode in modes)]
    assert not refused
