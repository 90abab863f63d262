import random
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch")

import torch

from trainwright.errors import BadInput
from trainwright.runtime.state_file import read_state, save_values

STATE = {
    "weight": torch.arange(64.0).view(8, 8), "bias": torch.ones(3, dtype=torch.bfloat16),
    "scalar": torch.tensor(2.5), "none": torch.zeros(0, 4),
}  # fmt: skip


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_weights_are_read_as_they_were_written(tmp_path: Path, suffix: str) -> None:
    save_values(tmp_path / f"end{suffix}", STATE)
    found = read_state(tmp_path / f"end{suffix}")
    assert found.keys() == STATE.keys()
    assert all(torch.equal(found[name], STATE[name]) for name in STATE)


def test_other_programs_read_safetensors_with_checksums(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.torch", reason="needs safetensors")
    save_values(tmp_path / "end.safetensors", STATE)
    found = library.load_file(tmp_path / "end.safetensors")
    assert all(torch.equal(found[name], STATE[name]) for name in STATE)
    library.save_file(STATE, tmp_path / "other.safetensors")
    assert read_state(tmp_path / "other.safetensors").keys() == STATE.keys()


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_a_flipped_bit_is_refused_or_changes_no_weight(tmp_path: Path, suffix: str) -> None:
    path, chosen = tmp_path / f"end{suffix}", random.Random(1)
    save_values(path, STATE)
    good, refused = path.read_bytes(), 0
    for _ in range(200):
        content = bytearray(good)
        bit = chosen.randrange(8 * len(good))
        content[bit // 8] ^= 1 << bit % 8
        path.unlink()
        path.write_bytes(content)
        try:
            found = read_state(path)
        except BadInput:
            refused += 1
            continue
        assert all(name not in found or torch.equal(found[name], STATE[name]) for name in STATE), bit
    assert refused


@pytest.mark.parametrize(("suffix", "what"), [(".safetensors", "weight weight"), (".pt", "record ")])
def test_a_damaged_weight_is_named(tmp_path: Path, suffix: str, what: str) -> None:
    path = tmp_path / f"end{suffix}"
    save_values(path, STATE)
    content = bytearray(path.read_bytes())
    content[content.index(torch.tensor([62.0, 63.0]).numpy().tobytes())] ^= 4
    path.write_bytes(content)
    with pytest.raises(BadInput, match=f"edited or damaged since it was written: the checksum of {what}"):
        read_state(path)
