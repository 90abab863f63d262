"""Samples that a user gives: what is read, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from trainwright.algorithm.experiment import Experiment
from trainwright.algorithm.rehearse import rehearse
from trainwright.algorithm.samples import given_samples, read_samples
from trainwright.errors import BadInput


def saved(folder: Path, **arrays: object) -> str:
    np.savez(folder / "samples.npz", **arrays)  # type: ignore[arg-type]
    return str(folder / "samples.npz")


def blobs(count: int = 400) -> dict[str, object]:
    """Three classes of 2 by 3 pictures that a straight line tells apart."""
    chance = np.random.default_rng(0)
    labels = chance.integers(3, size=count)
    return {"inputs": 5.0 + labels[:, None, None] + 0.1 * chance.normal(size=(count, 2, 3)), "labels": labels}


def test_samples_are_flat_divided_and_scaled_by_those_to_learn_from(tmp_path: Path) -> None:
    samples = read_samples(given_samples(saved(tmp_path, **blobs())))
    assert samples.shape == (6, 3)
    parts = samples.divided(seed=1)
    assert [len(part.targets) for part in (parts.train, parts.validation, parts.test)] == [240, 80, 80]
    assert float(parts.train.inputs.mean()) == pytest.approx(0.0, abs=1e-5)
    assert float(parts.train.inputs.std()) == pytest.approx(1.0, abs=1e-5)
    again = samples.divided(seed=2)
    assert parts.test.targets.tolist() != again.test.targets.tolist()


@pytest.mark.parametrize("kind", ["whole", "small", "ensemble"])
def test_a_network_learns_what_is_given(tmp_path: Path, kind: str) -> None:
    asked = Experiment(
        network="given-mlp", algorithm="ddp", workers=2, steps=40, rate=1e-2, seed=0,
        kind=kind, share=1.0 if kind == "whole" else 0.5, given=given_samples(saved(tmp_path, **blobs())),
    )  # type: ignore[arg-type]  # fmt: skip
    assert rehearse(asked).last.test["accuracy"] > 0.95


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"labels": np.zeros(400)}, "labels of float64"),
        ({"labels": np.full(400, -1)}, "from -1 to -1"),
        ({"labels": np.zeros(3, int)}, r"labels of \(3,\)"),
        ({"inputs": np.full((400, 6), np.nan)}, "not finite"),
        ({"inputs": np.full((400, 6), "a")}, "inputs of <U1"),
        ({"inputs": np.zeros(400)}, r"inputs of \(400,\)"),
        (blobs(100), "100 samples"),
    ],
)
def test_samples_that_cannot_be_learned_are_refused(
    tmp_path: Path, changed: dict[str, object], rule: str
) -> None:
    with pytest.raises(BadInput, match=rule):
        given_samples(saved(tmp_path, **(blobs() | changed)))


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file"):
        given_samples(str(tmp_path / "none.npz"))
    (tmp_path / "text.npz").write_text("not an archive")
    with pytest.raises(BadInput, match="no such arrays"):
        given_samples(str(tmp_path / "text.npz"))
    with pytest.raises(BadInput, match="no such arrays"):
        given_samples(saved(tmp_path, pictures=np.zeros((9, 9))))
    np.save(tmp_path / "one.npy", np.zeros((9, 9)))
    with pytest.raises(BadInput, match="no such arrays"):
        given_samples(str(tmp_path / "one.npy"))
