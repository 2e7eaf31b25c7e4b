"""Untrusted files: only regular files of limited size are read, and links are not followed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlplug_core.config import files
from rlplug_core.errors import BadFile, clean, plain


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text('"secret"')
    return path


def test_regular_file_is_read(secret: Path) -> None:
    assert files.from_json(secret) == "secret"
    assert files.is_regular(secret)


def test_links_pipes_devices_and_directories_raise(secret: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    pipe = tmp_path / "pipe"
    folder = tmp_path / "folder"
    link.symlink_to(secret)
    os.mkfifo(pipe)
    folder.mkdir()
    for path in (link, pipe, folder, Path("/dev/zero")):
        assert not files.is_regular(path)
        with pytest.raises(BadFile, match=f"^{path} cannot be used: it is not a regular file; delete it$"):
            files.content(path)
    with pytest.raises(BadFile, match="not a regular file"):
        files.open_regular(link, "ab+")
    assert secret.read_text() == '"secret"'


def test_large_sparse_file_raises(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with open(path, "wb") as file:
        file.truncate(files.TEXT + 1)
    with pytest.raises(BadFile, match="it has 67,108,865 bytes"):
        files.content(path)


def test_invalid_json_raises(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    cases = (("[" * 100_000, "nests too deep"), ("9" * 5000, "not JSON"), ("{", "not JSON"), ("\udcff", "not JSON"))
    for text, message in cases:
        path.write_bytes(text.encode(errors="surrogateescape"))
        with pytest.raises(BadFile, match=message):
            files.from_json(path)


def test_invalid_toml_raises(tmp_path: Path) -> None:
    path = tmp_path / "file.toml"
    path.write_text("x = 2020-01-01")
    with pytest.raises(ValueError, match="a date or a time"):
        files.from_toml(path)
    for text in (f"x = {'[' * 10_000}{']' * 10_000}", f"{'.'.join('x' * 5_000)} = 1", "x = " + "9" * 5000):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"nests too deep|integer string conversion"):
            files.from_toml(path)


def test_replace_does_not_follow_links(secret: Path, tmp_path: Path) -> None:
    for name in ("new", ".new.tmp"):
        (tmp_path / name).symlink_to(secret)
    files.replace(tmp_path / "new", b"new")
    assert (tmp_path / "new").read_bytes() == b"new"
    assert not (tmp_path / "new").is_symlink()
    assert secret.read_text() == '"secret"'


def test_clean_removes_escape_codes() -> None:
    text = "a\x1b[31mred\x07\n\x9b1mb\u202ec\udcff"
    assert clean(text) == "a [31mred \n 1mb c "
    assert plain(text) == "a [31mred 1mb c"
    assert plain("x" * 300, 10) == "xxxxxxxxx…"


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="only Linux can lock a directory")
def test_temporary_directory_has_one_writer(tmp_path: Path) -> None:
    path = tmp_path / "film.part"
    with files.temporary_directory(path) as folder:
        (folder / "frame").touch()
        with pytest.raises(BadFile, match=f"{path} .* another process writes"), files.temporary_directory(path):
            pass
        assert (path / "frame").exists()
    path.mkdir()
    (path / "frame").touch()
    with files.temporary_directory(path) as folder:  # a killed process left it
        assert not list(folder.iterdir())
