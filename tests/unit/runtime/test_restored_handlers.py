"""Handlers of signals are those from before, once a launcher is done."""

import signal
import threading
from collections.abc import Callable

import pytest

pytest.importorskip("torch")

from trainwright.runtime import launch
from trainwright.runtime.apart.supervise import Supervisor
from trainwright.runtime.restored_handlers import restored_handlers

NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in NUMBERS]


def set_handlers() -> None:
    for number in NUMBERS:
        signal.signal(number, lambda *_: None)


def test_handlers_are_put_back_also_after_an_exception() -> None:
    before = handlers()
    with pytest.raises(ZeroDivisionError), restored_handlers():
        _ = set_handlers(), 1 // 0
    assert handlers() == before


def test_another_thread_sets_none_and_puts_none_back() -> None:
    failures: list[Exception] = []

    def enter() -> None:
        try:
            with restored_handlers():
                pass
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join(60)
    assert not failures


def test_a_launch_leaves_no_handler_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def elastic_launch(config: object, enter: Callable[..., None]) -> Callable[..., None]:
        def start(*arguments: object) -> None:
            set_handlers()  # as torch does in its own
            seen.extend(handlers())

        return start

    monkeypatch.setattr(launch, "elastic_launch", elastic_launch)
    before = handlers()
    started = launch.Launch(enter=print, arguments=(), restarts=0, left=lambda count: count)
    assert started.run(1) == 0
    assert seen != before
    assert handlers() == before


def test_a_supervisor_forwards_signals_only_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr(Supervisor, "_start_all", lambda *_, **__: seen.extend(handlers()))
    before = handlers()
    supervisor = Supervisor(
        enter=print, arguments=(), restarts=0, timeout_s=1.0, survives=False, replaces=False
    )
    assert supervisor.run(1) == 0
    assert seen == [supervisor._forward] * 3
    assert handlers() == before
