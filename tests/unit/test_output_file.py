"""Output files: whole or unchanged, and never in place of a device, a pipe or a link."""

import os
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import failure, trainwright
from trainwright.errors import BadInput
from trainwright.output_file import append_output, open_output, save_bytes, save_pieces, save_text

NOBODY = 65534


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A directory that every user may enter."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def as_nobody(shared_folder: Path) -> Iterator[Path]:
    """A directory of root's, and a test that may do what any user may."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become somebody else")
    try:
        yield shared_folder
    finally:
        os.seteuid(0)


def device(path: Path, minor: int) -> Path:
    """A device node of the test's own: 3 is null, 7 is full."""
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
        path.open("wb").close()
    except PermissionError:
        pytest.skip("device nodes cannot be made or opened here")
    return path


def test_a_new_file_has_the_permissions_of_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        save_text(tmp_path / "new", "text")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_an_existing_file_keeps_its_permissions_and_has_a_new_inode(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    path.write_text("old", encoding="utf-8")
    path.chmod(0o604)
    before = path.stat()
    save_text(path, "new")
    assert path.read_text(encoding="utf-8") == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o604
    assert path.stat().st_ino != before.st_ino  # a reader of the old file has all of it
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_an_existing_file_keeps_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    path.write_text("old", encoding="utf-8")
    os.chown(path, NOBODY, NOBODY)
    save_text(path, "new")
    assert (path.stat().st_uid, path.stat().st_gid) == (NOBODY, NOBODY)


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere" / "target", tmp_path / "link"
    target.write_text("old", encoding="utf-8")
    link.symlink_to("elsewhere/target")
    save_text(link, "new")
    assert link.is_symlink()
    assert target.read_text(encoding="utf-8") == "new"
    assert [*(tmp_path / "elsewhere").iterdir()] == [target]


def test_a_link_to_nothing_stays_and_its_target_is_made(tmp_path: Path) -> None:
    (tmp_path / "first").symlink_to("second")
    (tmp_path / "second").symlink_to("target")
    save_text(tmp_path / "first", "new")
    assert (tmp_path / "first").is_symlink()
    assert (tmp_path / "second").is_symlink()
    assert (tmp_path / "target").read_text(encoding="utf-8") == "new"


def test_links_in_a_circle_are_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    with pytest.raises(BadInput, match="cannot be written"):
        save_text(tmp_path / "one", "new")


def test_a_fifo_is_written_through(tmp_path: Path) -> None:
    path, read = tmp_path / "fifo", []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: read.append(path.read_bytes()))
    reader.start()
    save_pieces(path, (b"one ", b"two"))
    reader.join(timeout=10)
    assert read == [b"one two"]
    assert stat.S_ISFIFO(path.stat().st_mode)


@pytest.mark.parametrize("linked", [False, True])
def test_a_device_is_written_through(tmp_path: Path, linked: bool) -> None:
    node = path = device(tmp_path / "null", 3)
    if linked:
        path = tmp_path / "link"
        path.symlink_to(node)
    save_text(path, "text")
    assert stat.S_ISCHR(node.lstat().st_mode)
    assert path.is_symlink() == linked


def test_a_full_device_is_an_error_of_one_line_and_stays(tmp_path: Path) -> None:
    path = device(tmp_path / "full", 7)
    with pytest.raises(BadInput, match=r"cannot be written \(No space left on device\)"):
        save_text(path, "text")
    assert stat.S_ISCHR(path.lstat().st_mode)


def test_a_directory_is_an_error_of_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot be written \(Is a directory\)"):
        save_text(tmp_path, "text")


@pytest.mark.parametrize("where", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "link"])
@pytest.mark.parametrize("piped", [False, True])
def test_standard_output_is_continued_where_it_stands(tmp_path: Path, where: str, piped: bool) -> None:
    if not Path("/proc/self/fd").is_dir() and where != "/dev/stdout":
        pytest.skip("this system has no /proc")
    (tmp_path / "link").symlink_to("/dev/stdout")
    program = (
        "from pathlib import Path; from trainwright.output_file import save_text\n"
        f"print('a'); save_text(Path({str(tmp_path / where)!r}), 'b\\n'); print('c')"
    )
    out = tmp_path / "out"
    with out.open("wb") as file:
        result = subprocess.run(
            [sys.executable, "-c", program], stdout=subprocess.PIPE if piped else file, check=True
        )
    assert (result.stdout if piped else out.read_bytes()) == b"a\nb\nc\n"


def test_a_descriptor_that_is_not_open_is_an_error_of_one_line() -> None:
    with pytest.raises(BadInput, match="cannot be written"):
        save_text(Path("/dev/fd/987"), "text")


@pytest.mark.parametrize("ending", [KeyboardInterrupt, MemoryError, RuntimeError])
def test_an_interruption_leaves_the_old_file_and_no_draft(
    tmp_path: Path, ending: type[BaseException]
) -> None:
    path = tmp_path / "kept"
    path.write_text("old", encoding="utf-8")

    def pieces() -> Iterator[bytes]:
        yield b"half of the new"
        raise ending

    with pytest.raises(ending):
        save_pieces(path, pieces())
    assert path.read_text(encoding="utf-8") == "old"
    assert [*tmp_path.iterdir()] == [path]


def test_a_file_system_that_is_full_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kept"
    path.write_text("old", encoding="utf-8")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"), open_output(path, durable=True) as file:
        file.write(b"new")
    assert path.read_text(encoding="utf-8") == "old"
    assert [*tmp_path.iterdir()] == [path]


def test_a_file_in_a_directory_that_takes_no_drafts_is_written_in_place(as_nobody: Path) -> None:
    path = as_nobody / "mine"
    path.write_text("what was there before, longer", encoding="utf-8")
    os.chown(path, NOBODY, NOBODY)
    os.seteuid(NOBODY)
    before = path.stat().st_ino
    save_text(path, "new")
    assert path.read_text(encoding="utf-8") == "new"
    assert path.stat().st_ino == before


def test_an_owner_that_a_draft_cannot_have_is_kept_by_writing_in_place(as_nobody: Path) -> None:
    path = as_nobody / "of_root"
    path.write_text("old", encoding="utf-8")
    path.chmod(0o666)
    as_nobody.chmod(0o777)
    os.seteuid(NOBODY)
    save_bytes(path, b"new" * 10_000)
    assert path.read_bytes() == b"new" * 10_000
    assert path.stat().st_uid == 0
    assert [*as_nobody.iterdir()] == [path]


def test_a_file_that_may_not_be_written_is_not_replaced_either(as_nobody: Path) -> None:
    path = as_nobody / "of_root"
    path.write_text("old", encoding="utf-8")
    path.chmod(0o644)
    as_nobody.chmod(0o777)
    os.seteuid(NOBODY)
    with pytest.raises(BadInput, match=r"cannot be written \(Permission denied\)"):
        save_text(path, "new")
    assert path.read_text(encoding="utf-8") == "old"


def test_lines_are_added_behind_what_is_kept_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("one\ntwo\nhalf", encoding="utf-8")
    with append_output(path, "one\ntwo\n") as file:
        file.write(b"three\n")
    assert path.read_text(encoding="utf-8") == "one\ntwo\nthree\n"


def test_lines_go_through_a_device(tmp_path: Path) -> None:
    path = device(tmp_path / "full", 7)
    file = append_output(path, "kept lines are of files alone\n")
    with file, pytest.raises(OSError, match="No space left"):
        file.write(b"line\n")
    assert stat.S_ISCHR(path.lstat().st_mode)


def test_a_text_with_bytes_of_no_encoding_is_written_with_question_marks(tmp_path: Path) -> None:
    save_text(tmp_path / "out", "model \udcff")
    assert (tmp_path / "out").read_text(encoding="utf-8") == "model ?"


def test_a_command_writes_through_devices_that_its_options_name(tmp_path: Path) -> None:
    null, full = device(tmp_path / "null", 3), device(tmp_path / "full", 7)
    options = ("simulate", "gpt2", "h100:8", "dp8 mb1", "--batch", "8")
    written = trainwright(*options, "--json", str(null), "--trace", str(null), "--save-plan", str(null))
    assert written.returncode == 0, written.stderr
    message = failure(trainwright(*options, "--trace", str(full)), 1)
    assert "cannot be written (No space left on device)" in message
    assert all(stat.S_ISCHR(each.lstat().st_mode) for each in (null, full))
