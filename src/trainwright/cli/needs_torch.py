"""Commands that need PyTorch say so where it is not installed."""

from importlib.util import find_spec

from trainwright.errors import BadInput


def check_torch(command: str) -> None:
    """Raise if PyTorch is not there."""
    if find_spec("torch") is None:
        raise BadInput("command", command, "needs PyTorch", "pip install 'trainwright[run]'")
