from pathlib import Path

import pytest

from tests.runtime import launching as launched

pytest.importorskip("torch", reason="needs torch")
accumulator = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator", reason="needs tensorboard"
)


def test_tensorboard_reads_back_what_a_run_and_its_continuation_have_written(tmp_path: Path) -> None:
    board, metrics, kept = (str(tmp_path / name) for name in ("board", "metrics.jsonl", "kept"))
    options = (
        "dp2", "--rate", "1e-2", "--schedule", "constant", "--evaluate-every", "2", "--tensorboard", board,
        "--metrics", metrics, "--checkpoint", kept, "--resume",
    )  # fmt: skip
    for steps in ("2", "4"):
        result = launched.run(launched.build_model(tmp_path), *options, "--steps", steps)
        assert (result.returncode, result.stderr) == (0, "")
    events = accumulator.EventAccumulator(board)
    events.Reload()
    assert set(events.Tags()["scalars"]) == {
        "loss", "gradient_norm", "rate", "tokens_per_s", "seconds", "evaluation_loss"
    }  # fmt: skip
    read = [(each.step, each.value) for each in events.Scalars("loss")]
    written = launched.losses(Path(metrics))
    assert [step for step, _ in read] == [step for step, _ in written] == [1, 2, 3, 4]
    assert [loss for _, loss in read] == pytest.approx([loss for _, loss in written])
    assert [each.step for each in events.Scalars("evaluation_loss")] == [2, 4]
