"""Checkpoint folders: complete, hashed, and safe against a kill at any moment.

The caller decides on their content. A save writes `.new-000120`, hashes it, and renames it to
`000120`. A folder is renamed to `.gone-` before it is deleted, and to `.old-` before it is
replaced, so that a numbered folder is always complete.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from whet.errors import DataError
from whet.store.files import find_damage, hash_file, read_json, sync, write_errors, write_json
from whet.types import Json
from whet.world import get_world

MANIFEST = "manifest.json"


class Checkpoints:
    """The checkpoints of a run: the newest `keep_last`, and the best.

    `warn` is called with a sentence for each damaged one.
    """

    def __init__(
        self,
        folder: Path,
        *,
        keep_last: int = 2,
        warn: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        if keep_last < 2:
            raise ValueError(
                "keep_last must be at least 2, so that a damaged checkpoint has one before it"
            )
        self.folder = folder
        self._keep_last = keep_last
        self._warn = warn
        get_world().run_on_rank_zero(self._open, f"checkpoints in {folder.name}")

    def _open(self) -> None:
        with write_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._remove_leftovers()

    @contextmanager
    def start(self, step: int) -> Iterator[Path]:
        """Make the folder that becomes the checkpoint of `step` once it is complete.

        All ranks call this together, and each may add files. The folder is deleted if a rank fails.
        """
        new = self._new(step)

        def make() -> None:
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir()

        with write_errors(self._path(step)):
            get_world().run_on_rank_zero(make, f"the start of checkpoint {step}")
            try:
                yield new
            except BaseException:
                self._discard(new)
                raise

    def _discard(self, new: Path) -> None:
        if get_world().is_rank_zero:
            shutil.rmtree(new, ignore_errors=True)

    def complete(self, step: int) -> Path:
        """Turn the started folder into the checkpoint of `step`, once all ranks have written to it.

        Checkpoints of later steps are deleted.
        """
        world = get_world()
        new = self._new(step)
        target = self._path(step)

        def move() -> None:
            names = (path.relative_to(new).as_posix() for path in files)
            _write_manifest(new, step, dict(zip(names, hashes, strict=True)))
            self._replace(new, target)
            for later in (other for other in self.steps() if other > step):
                self._delete(later)
            self.delete_older(step)

        with write_errors(target):
            try:
                world.all_gather(None, f"the files of checkpoint {step}")
                files = sorted(path for path in new.rglob("*") if path.is_file())
                of_rank = [_sync_and_hash(path) for path in world.split_between_ranks(files)]
                hashes = world.merge_from_ranks(of_rank, f"the hashes of checkpoint {step}")
                world.run_on_rank_zero(move, f"the end of checkpoint {step}")
            except BaseException:
                self._discard(new)
                raise
        return target

    def _new(self, step: int) -> Path:
        return self.folder / f".new-{step:06d}"

    def latest(self) -> tuple[int, Path] | None:
        """Find the newest intact checkpoint; damaged ones are skipped with a warning."""
        return get_world().run_on_rank_zero(self._latest, "the newest checkpoint")

    def _latest(self) -> tuple[int, Path] | None:
        for step in reversed(self.steps()):
            if self._is_intact(step, "the one before it is used"):
                return step, self._path(step)
        return None

    def mark_best(self, step: int) -> None:
        """Mark the checkpoint to keep until another is better."""
        if get_world().is_rank_zero:
            assert step in self.steps(), f"step {step} has no checkpoint to call the best"
            write_json(self.folder / "best.json", {"step": step})

    def best(self) -> tuple[int, Path] | None:
        """Find the checkpoint marked as best; None if there is none, or if it is damaged."""
        return get_world().run_on_rank_zero(self._best, "the best checkpoint")

    def _best(self) -> tuple[int, Path] | None:
        step = self._best_step()
        if step is None or not self._is_intact(step, "it is not used as the best"):
            return None
        return step, self._path(step)

    def steps(self) -> list[int]:
        """List the steps that have a checkpoint, intact or damaged, oldest first."""
        return list(list_checkpoints(self.folder))

    def _path(self, step: int) -> Path:
        return self.folder / f"{step:06d}"

    def _replace(self, new: Path, target: Path) -> None:
        old = self.folder / f".old-{target.name}"
        if target.exists():
            target.rename(old)
        new.rename(target)
        sync(self.folder)
        shutil.rmtree(old, ignore_errors=True)

    def delete_older(self, saved: int) -> None:
        """Delete checkpoints before the newest ones up to `saved`, except the best."""
        if get_world().is_rank_zero:
            kept = [step for step in self.steps() if step <= saved][-self._keep_last :]
            with write_errors(self.folder):
                for step in self.steps():
                    if step < saved and step not in (*kept, self._best_step()):
                        self._delete(step)

    def _delete(self, step: int) -> None:
        deleted = self.folder / f".gone-{step:06d}"
        shutil.rmtree(deleted, ignore_errors=True)
        self._path(step).rename(deleted)
        shutil.rmtree(deleted)

    def _remove_leftovers(self) -> None:
        for path in sorted(self.folder.glob(".old-*")):
            target = self.folder / path.name.removeprefix(".old-")
            if not target.exists():
                path.rename(target)
        for path in self.folder.glob(".*-*"):
            if re.fullmatch(r"\.(new|old|gone)-\d{6,}", path.name):
                shutil.rmtree(path)
        for path in self.folder.glob(".*.new"):
            path.unlink()

    def _best_step(self) -> int | None:
        file = self.folder / "best.json"
        if not file.exists():
            return None
        value = read_json(file)
        step = value.get("step") if isinstance(value, dict) else None
        if not isinstance(step, int):
            raise DataError(
                f'{file} should say {{"step": ...}}: delete it to continue without a best '
                "checkpoint"
            )
        return step

    def _is_intact(self, step: int, instead: str) -> bool:
        damage = check_checkpoint(self._path(step))
        if damage is not None:
            self._warn(f"checkpoint {self._path(step)} is damaged ({damage}); {instead}")
        return damage is None


def _sync_and_hash(path: Path) -> Json:
    sync(path)
    return hash_file(path)


def _write_manifest(folder: Path, step: int, hashes: dict[str, Json]) -> None:
    write_json(folder / MANIFEST, {"step": step, "files": hashes})
    for inner in folder.rglob("*"):
        if inner.is_dir():
            sync(inner)
    sync(folder)


def list_checkpoints(folder: Path) -> dict[int, Path]:
    """List the checkpoints of a folder without changing it, damaged ones included, oldest first."""
    paths = folder.iterdir() if folder.is_dir() else ()
    steps = [path for path in paths if re.fullmatch(r"\d{6,}", path.name)]
    return {int(path.name): path for path in sorted(steps, key=lambda path: int(path.name))}


def check_checkpoint(folder: Path) -> str | None:
    """Compare all of a checkpoint with its manifest; return a difference, or None."""
    return _find_damage(folder, int(folder.name))


def check_model(folder: Path) -> None:
    """Compare the model in a checkpoint with its manifest.

    The model may be that of a second policy. Optimizers are not read. A folder outside a run has no
    manifest, and passes.
    """
    checkpoint = folder.parents[1] if folder.parent.name == "others" else folder
    is_ours = (checkpoint.parents[1] / "ledger.jsonl").is_file() if checkpoint.name else False
    if not is_ours or checkpoint.parent.name != "checkpoints" or not checkpoint.name.isdigit():
        return
    damage = _find_damage(checkpoint, int(checkpoint.name), model=folder)
    if damage is not None:
        raise DataError(
            f"the model in {folder} is damaged ({damage}): restore the file, or take another "
            "checkpoint; to use a changed one, copy it out of the run first"
        )


def _find_damage(folder: Path, step: int, *, model: Path | None = None) -> str | None:
    """Describe a difference from the manifest, in a whole checkpoint or one of its models."""
    if not (folder / MANIFEST).is_file():
        return f"it has no {MANIFEST}"
    try:
        value = read_json(folder / MANIFEST)
    except DataError:
        return f"its {MANIFEST} is broken"
    files = value.get("files") if isinstance(value, dict) and value.get("step") == step else None
    if not isinstance(files, dict):
        return f"its {MANIFEST} is not that of step {step}"
    if model is not None:
        files = {name: facts for name, facts in files.items() if (folder / name).parent == model}
    return find_damage(folder, files)
