import shutil
from pathlib import Path

import pytest

from whet.errors import DataError
from whet.store.checkpoints import Checkpoints
from whet.store.files import find_damage, hash_file, read_json, sha256, write_errors

EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_the_hash_of_nothing_is_the_known_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    assert sha256(tmp_path / "a") == EMPTY


def test_a_manifest_lists_files_in_folders_too(tmp_path: Path) -> None:
    saved = Checkpoints(tmp_path)
    with saved.start(1) as new:
        (new / "in").mkdir()
        (new / "in" / "a").write_bytes(b"")
    folder = saved.complete(1)
    hashes = {"in/a": {"bytes": 0, "sha256": EMPTY}}
    assert read_json(folder / "manifest.json") == {"step": 1, "files": hashes}


def test_damage_says_what_changed(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"abc")
    hashes = {"a": hash_file(file)}
    assert find_damage(tmp_path, hashes) is None
    file.write_bytes(b"ab")
    assert find_damage(tmp_path, hashes) == "a has 2 bytes instead of 3"
    file.write_bytes(b"abd")
    assert find_damage(tmp_path, hashes) == "a is not what was written (its SHA-256 differs)"
    file.unlink()
    assert find_damage(tmp_path, hashes) == "a is missing"
    file.write_bytes(b"abc")
    assert find_damage(tmp_path, {"a": 3}) == "the manifest's entry for a is broken"


def test_a_folder_that_cannot_be_copied_is_told_by_its_first_file(tmp_path: Path) -> None:
    failures = [("a", "b", "[Errno 28] No space left on device: 'b'"), ("c", "d", "more of it")]
    with (
        pytest.raises(DataError, match=r"No space left on device: 'b'; choose"),
        write_errors(tmp_path),
    ):
        raise shutil.Error(failures)
