import json
from pathlib import Path

import numpy as np
import pytest

from trainwright.errors import BadInput
from trainwright.runtime.tokens import BUILT_IN, Tokens, check_tokens, load_tokens


def test_a_bin_file_is_little_endian_numbers_of_two_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(bytes([1, 0, 2, 1]))
    assert load_tokens(str(path)).values.tolist() == [1, 258]  # 2 + 1 · 256


def test_a_note_beside_it_states_dtype_and_vocabulary(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(bytes([1, 0, 0, 1]))
    Path(f"{path}.json").write_text(json.dumps({"dtype": "uint32", "vocab": 7}))
    tokens = load_tokens(str(path))
    assert tokens.values.tolist() == [1 + 256**3]
    assert tokens.vocab == 7


def test_an_array_of_numpy_is_mapped(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(5, dtype=np.int64))
    values = load_tokens(str(tmp_path / "a.npy")).values
    assert isinstance(values, np.memmap)
    assert values.tolist() == [0, 1, 2, 3, 4]


def test_the_built_in_text_is_bytes() -> None:
    tokens = load_tokens(BUILT_IN)
    assert tokens.vocab == 256
    assert len(tokens.values) > 3000
    assert bytes(tokens.values[:4]) == b"The "


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("odd.bin", b"abc", "has 3 bytes, which are no whole count of uint16"),
        ("empty.bin", b"", "has 0 bytes"),
        ("text.npy", b"no array", "is not a NumPy array"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=problem):
        load_tokens(str(tmp_path / name))


def test_an_array_of_two_dims_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((2, 2), dtype=np.int32))
    with pytest.raises(BadInput, match="is int32 of shape"):
        load_tokens(str(tmp_path / "a.npy"))


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(BadInput, match=r'token file "gone.bin": cannot be read \(No such file'):
        load_tokens("gone.bin")


def test_a_directory_is_no_file_of_tokens(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot be read|no whole count"):
        load_tokens(str(tmp_path))


def test_a_note_with_another_dtype_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"ab")
    (tmp_path / "a.bin.json").write_text('{"dtype": "float32"}')
    with pytest.raises(BadInput, match="use one of uint8, uint16, uint32"):
        load_tokens(str(tmp_path / "a.bin"))


def test_a_token_beyond_the_vocabulary_is_found() -> None:
    tokens = Tokens(name="a.bin", values=np.array([3, 9, 4], dtype=np.uint16))
    check_tokens(tokens, 10)
    with pytest.raises(BadInput, match="token 1 is 9, and the model's vocabulary is 9"):
        check_tokens(tokens, 9)


def test_a_larger_vocabulary_than_the_models_is_refused() -> None:
    tokens = Tokens(name="a.bin", values=np.array([1], dtype=np.uint16), vocab=50)
    with pytest.raises(BadInput, match="has a vocabulary of 50, and the model one of 40"):
        check_tokens(tokens, 40)
