"""Every option of every command changes the answer, or is an error that names it: none is ignored."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")
pytest.importorskip("matplotlib")
pytest.importorskip("fastapi")

from tests.option_files import prepare_files
from tests.option_modes import MODES
from tests.options import CommandMode, check_option, every_option
from trainwright.cli.main import COMMANDS


@pytest.fixture(scope="module", autouse=True)
def files() -> None:
    """What the commands are asked about."""
    prepare_files()


def test_every_command_is_tried() -> None:
    tried = {mode.words[0] for mode in MODES}
    assert set(COMMANDS) - tried == {"calibrate"}  # which needs a trace of this machine


@pytest.mark.parametrize(
    ("mode", "flag"), [pytest.param(*each, id=f"{each[0]}{each[1]}") for each in every_option(MODES)]
)
def test_an_option_is_honoured_or_refused(mode: CommandMode, flag: str) -> None:
    check_option(mode, flag)
