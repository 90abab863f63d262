"""Which of Ray's authentication variables a sweep sets, by what the machine has."""

import os
from pathlib import Path

import pytest

from trainwright.sweep.ray_token import has_token, token_authentication

NAMES = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No token anywhere, whatever the machine has."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def during(address: str) -> dict[str, str]:
    """The variables that a connection sees."""
    with token_authentication(address):
        return {name: os.environ[name] for name in NAMES if name in os.environ}


def save_token(folder: Path) -> Path:
    path = folder / ".ray" / "auth_token"
    path.parent.mkdir()
    path.write_text("secret\n")
    return path


def test_without_a_token_nothing_is_set() -> None:
    assert during("127.0.0.1:6379") == {}


def test_a_token_in_the_home_directory_is_presented(tmp_path: Path) -> None:
    save_token(tmp_path)
    assert during("127.0.0.1:6379") == {"RAY_AUTH_MODE": "token"}


def test_a_token_in_a_named_file_is_presented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(save_token(tmp_path)))
    assert during("ray://there:10001")["RAY_AUTH_MODE"] == "token"


def test_an_empty_token_is_none(tmp_path: Path) -> None:
    save_token(tmp_path).write_text("\n")
    assert not has_token({})


def test_a_mode_that_the_user_has_set_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_token(tmp_path)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert during("127.0.0.1:6379") == during("local") == {"RAY_AUTH_MODE": "disabled"}


def test_a_local_cluster_has_a_token_of_its_own_each_time() -> None:
    first, second = during("local"), during("local")
    assert first["RAY_AUTH_MODE"] == "token"
    assert first["RAY_AUTH_TOKEN"] != second["RAY_AUTH_TOKEN"]


def test_variables_that_ray_sets_meanwhile_are_forgotten() -> None:
    with token_authentication("auto"):
        os.environ["RAY_AUTH_MODE"] = "token"
    assert "RAY_AUTH_MODE" not in os.environ
