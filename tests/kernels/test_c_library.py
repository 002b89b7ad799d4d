"""The C kernels are compiled once, kept where only their user can write, and left out where there
is no compiler."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from whet.kernels.c import library as c_library


@pytest.fixture(autouse=True)
def anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    c_library.library.cache_clear()
    yield
    c_library.library.cache_clear()


def needs_compiler() -> None:
    if c_library.library() is None:
        pytest.skip("there is no C compiler")
    c_library.library.cache_clear()


@pytest.mark.parametrize("compiler", ["false", "no-such-compiler"])
def test_without_a_compiler_there_is_no_library(
    monkeypatch: pytest.MonkeyPatch, compiler: str
) -> None:
    monkeypatch.setenv("CC", compiler)

    assert c_library.library() is None


def test_a_compiler_that_does_not_end_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nsleep 30\n")
    slow.chmod(0o755)
    monkeypatch.setenv("CC", str(slow))
    monkeypatch.setattr(c_library, "TIMEOUT_SECONDS", 0.2)

    assert c_library.library() is None


def test_it_is_compiled_once_and_nothing_else_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    needs_compiler()
    files = list((tmp_path / "cache" / "whet").iterdir())
    monkeypatch.setattr(
        c_library, "_compile", lambda *_: pytest.fail("it was compiled a second time")
    )

    assert c_library.library() is not None
    assert [file.suffix for file in files] == [".so"]


def test_other_flags_make_another_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    needs_compiler()
    monkeypatch.setattr(c_library, "FLAGS", (*c_library.FLAGS, "-g0"))

    assert c_library.library() is not None
    assert len(list((tmp_path / "cache" / "whet").iterdir())) == 2


def test_a_folder_that_others_can_write_is_not_used(tmp_path: Path) -> None:
    needs_compiler()
    folder = tmp_path / "cache" / "whet"
    for file in folder.iterdir():
        file.unlink()
    folder.chmod(0o777)

    assert c_library.library() is not None
    assert not list(folder.iterdir())


def test_without_a_home_a_folder_of_the_process_serves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    needs_compiler()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))

    assert c_library.library() is not None


def test_what_is_no_library_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        c_library, "_compile", lambda compiler, file: file.write_bytes(b"not a library")
    )

    assert c_library.library() is None
