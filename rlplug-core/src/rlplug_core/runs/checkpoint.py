"""Checkpoints: a tree of state as files with hashes. A kill at any moment leaves the earlier checkpoints intact.

A checkpoint is a directory `<kind>-<step>` with one `.json` and one `.safetensors` file per component, and a
`manifest.json` with the SHA-256 of every file and of itself. It is written under a temporary name, fsynced and renamed.
Nothing in it can run code, and only files with the hash of the manifest are read.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from rlplug_core.config.files import as_type, hold_directory, is_directory, sync_directory
from rlplug_core.config.files import content as content_of
from rlplug_core.errors import BadCheckpoint, BadFile, plain
from rlplug_core.runs.component_files import read_component, write_component, write_file
from rlplug_core.runs.files import REMEDIES, writing
from rlplug_core.runs.schemas import Manifest, check_component
from rlplug_core.types import State

#: The version of the files and of the components' content; checkpoints with another version are refused.
FORMAT = 3
#: The prefix of a checkpoint that is being replaced.
ASIDE = ".old-"


class OtherFormat(BadCheckpoint):
    """Raised for an intact checkpoint in the format of another version of rlplug-core."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint on disk: its kind, env step and path."""

    kind: str
    step: int
    path: Path


@dataclass(frozen=True)
class Point:
    """The content of a checkpoint to continue from.

    Attributes:
        step: its env step.
        components: its state.
        after: the number of the last journal record before it.
        writers: the packages that wrote it, if other versions are installed here.
    """

    step: int
    components: Mapping[str, State]
    after: int | None
    writers: tuple[str, ...] = ()


class Checkpoints:
    """The checkpoints of a run: the last `keep` (0: all) of the kind `step`, and the last one of every other kind."""

    def __init__(self, directory: Path, keep: int = 3) -> None:
        self.directory = directory
        self.keep = keep

    def save(
        self,
        kind: str,
        step: int,
        components: Mapping[str, State],
        entries: Mapping[str, object],
    ) -> Saved:
        """Write a checkpoint to disk, then delete the old ones of its kind.

        Args:
            kind: `step`, `best` or `final`.
            step: the env step.
            components: the state of each component.
            entries: additional entries of the manifest.

        Raises:
            NotWritten: the system refused; the previous files are unchanged.
        """
        self._paths()  # raises an error if the directory is a link
        saved = Saved(kind, step, self.directory / f"{kind}-{step:012d}")
        with writing(saved.path):
            if not self.directory.is_dir():
                self.directory.mkdir(parents=True)
                sync_directory(self.directory.parent)
            with hold_directory(self.directory) as held:
                target = Saved(kind, step, held / saved.path.name)
                Checkpoints(held, self.keep)._save(target, components, entries)
        return saved

    def _save(
        self,
        saved: Saved,
        components: Mapping[str, State],
        entries: Mapping[str, object],
    ) -> None:
        temporary = self.directory / f".tmp-{saved.path.name}"
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir()
            with hold_directory(temporary) as held:
                _write(held, saved.step, components, entries)
            self._replace(temporary, saved.path)
            self._prune(saved)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)  # free the space on a full disk

    def kept(self, *kinds: str) -> list[Saved]:
        """Return the checkpoints of these kinds (default: all), newest first, then in the order of `kinds`."""
        checkpoints = []
        for path in self._paths():
            name = path.name.removeprefix(ASIDE)
            kind, _, step = name.rpartition("-")
            replaced = name != path.name and (self.directory / name).exists()
            is_checkpoint = kind and kind[0] != "." and re.fullmatch("[0-9]{1,18}", step)
            if (
                is_checkpoint
                and not replaced
                and (not kinds or kind in kinds)
                and is_directory(path)
            ):
                checkpoints.append(Saved(kind, int(step), path))
        return sorted(
            checkpoints, key=lambda saved: (-saved.step, kinds.index(saved.kind) if kinds else 0)
        )

    def load(
        self,
        kinds: Sequence[str],
        *only: str,
    ) -> tuple[Saved, dict[str, State], dict[str, Any], list[str]]:
        """Read the newest readable checkpoint of these kinds.

        Args:
            kinds: such as `step`, `final`, `best`.
            only: the components to read; default: all.

        Returns:
            The checkpoint, its components, its manifest, and the errors of newer ones.

        Raises:
            BadCheckpoint: no checkpoint can be read.
        """
        warnings: list[str] = []
        foreign = False
        for saved in self.kept(*kinds):
            try:
                components, manifest = read(saved.path, *only)
                if manifest.get("step") != saved.step:
                    raise BadCheckpoint(
                        f"checkpoint {saved.path.name} is damaged: its manifest has another step"
                    )
            except BadCheckpoint as error:
                warnings.append(str(error))
                foreign = foreign or isinstance(error, OtherFormat)
                continue
            return saved, components, manifest, warnings
        if not warnings and self.kept("step", "final"):
            raise BadCheckpoint(
                f"{self.directory} holds no {' or '.join(kinds)} checkpoint yet; try again later, or name another one: "
                "--checkpoint latest"
            )
        reasons = f": {'; '.join(warnings)}" if warnings else ""
        retrain = f"train it again by the options in {self.directory.parent / 'config.json'}"
        remedy = "," if foreign else "; bring back its files from a copy,"
        raise BadCheckpoint(
            f"{self.directory} holds no readable {' or '.join(kinds)} checkpoint{reasons}{remedy} or {retrain}"
        )

    def _paths(self) -> list[Path]:
        """Return the paths in the directory.

        Raises:
            BadFile: it is a link, which may lead out of the run, or not a directory.
        """
        if not os.path.lexists(self.directory):
            return []
        if not is_directory(self.directory):
            raise BadFile(self.directory, "it is not a directory of the run's own; delete it")
        return list(self.directory.iterdir())

    def _replace(self, temporary: Path, final: Path) -> None:
        """Rename a complete checkpoint; an older one with this name is renamed first, and `kept` still finds it."""
        aside = self.directory / f"{ASIDE}{final.name}"
        if final.exists():
            shutil.rmtree(aside, ignore_errors=True)
            final.rename(aside)
        temporary.rename(final)
        sync_directory(self.directory)
        shutil.rmtree(aside, ignore_errors=True)

    def _prune(self, newest: Saved) -> None:
        """Delete old checkpoints of the kind of `newest`, and later ones, which a resume has superseded."""
        checkpoints = self.kept(newest.kind)
        older = [saved for saved in checkpoints if saved.step < newest.step]
        count = self.keep - 1 if newest.kind == "step" else 0
        retained = [newest, *(older if count < 0 else older[:count])]
        for saved in checkpoints:
            if saved not in retained:
                # A checkpoint with some files deleted must not be visible, so rename it first.
                saved.path.rename(self.directory / f".tmp-{saved.path.name}")
        self.drop_unfinished()

    def drop_unfinished(self) -> int:
        """Delete unfinished checkpoints of processes that have ended; return their number."""
        stale = [path for path in self._paths() if path.name.startswith(".tmp-")]
        for path in stale:
            shutil.rmtree(path, ignore_errors=True)
        return len(stale)


def _write(
    directory: Path,
    step: int,
    components: Mapping[str, State],
    entries: Mapping[str, object],
) -> None:
    """Write the files of a checkpoint into an empty directory."""
    files: dict[str, str] = {}
    for name, state in components.items():
        files.update(write_component(directory, name, state))
    manifest = {
        "format": FORMAT,
        "step": step,
        "components": sorted(components),
        "files": files,
        **entries,
    }
    write_file(directory / "manifest.json", seal_manifest(manifest))
    sync_directory(directory)


#: Exceptions that `load_state_dict` may raise for the state of other code.
UNFIT = (
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    IndexError,
    RuntimeError,
    OverflowError,
    AssertionError,
    MemoryError,
)


@contextmanager
def explain_load_errors(
    path: Path,
    writers: Sequence[str] = (),
) -> Iterator[None]:
    """Convert an exception of `load_state_dict` to one sentence.

    The files are intact, so other code wrote them: packages of another version, or changed code of the same version.

    Args:
        path: the checkpoint.
        writers: the packages that wrote it, if other versions are installed here.

    Raises:
        BadCheckpoint: the state cannot be loaded.
    """
    try:
        yield
    except UNFIT as error:
        advice = (
            f"{', '.join(writers)} wrote it, and other versions are installed; install the old ones, "
            f"python -m pip install {' '.join(writers)}, and resume again"
            if writers
            else "other code wrote it, or an environment with other spaces; restore the algorithm, the environment and "
            "the wrappers that wrote it and resume again, or start a new run with 'rlplug run'"
        )
        reason = f"{type(error).__name__}: {plain(str(error), 100)}"
        raise BadCheckpoint(f"the state in {path} cannot be used ({reason}): {advice}") from error


def seal_manifest(manifest: Mapping[str, object]) -> bytes:
    """Return the content of a manifest file, with a hash of its other entries."""
    text = json.dumps(manifest, indent=1)
    return json.dumps(
        {**manifest, "sha256": hashlib.sha256(text.encode()).hexdigest()}, indent=1
    ).encode()


def read(path: Path, *only: str) -> tuple[dict[str, State], dict[str, Any]]:
    """Read a checkpoint and check its hashes.

    Args:
        path: its directory.
        only: the components to read; default: all.

    Returns:
        The components and the manifest.

    Raises:
        BadCheckpoint: a file is missing, changed or unreadable.
    """
    try:
        manifest = _manifest(path)
        entries = as_type(manifest, Manifest, path / "manifest.json")
        manifest = {"exact": entries.exact, "inexact": entries.inexact, **manifest}
        names = only or manifest["components"]
        components = {name: read_component(path, name, manifest["files"]) for name in names}
        for name, state in components.items():
            check_component(path, name, state)
        return components, manifest
    except UNREADABLE as error:
        raise _unreadable(path, error) from error


def digests(path: Path, component: str) -> dict[str, str]:
    """Return the hashes of a component's files; equal hashes mean equal state.

    Raises:
        BadCheckpoint: the manifest cannot be read.
    """
    try:
        files: dict[str, str] = _manifest(path)["files"]
        return {
            name: digest for name, digest in files.items() if name.partition(".")[0] == component
        }
    except UNREADABLE as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> BadCheckpoint:
    """Return the error about a checkpoint: damaged, or perhaps intact if the system could not read a file."""
    missing = isinstance(error, FileNotFoundError | NotADirectoryError)
    if missing or not isinstance(error, OSError):
        return BadCheckpoint(f"checkpoint {path.name} is damaged: {type(error).__name__}: {error}")
    remedy = REMEDIES.get(error.errno or errno.EIO, REMEDIES[errno.EIO])
    return BadCheckpoint(
        f"checkpoint {path.name} cannot be read: {error}; {remedy}, then type the same command again"
    )


#: Exceptions that damaged files may raise.
UNREADABLE = (
    BadFile,
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
    SafetensorError,
)


def _manifest(path: Path) -> dict[str, Any]:
    content = content_of(path / "manifest.json")
    manifest: dict[str, Any] = json.loads(content)
    if seal_manifest({key: value for key, value in manifest.items() if key != "sha256"}) != content:
        raise BadCheckpoint(
            f"checkpoint {path.name} is damaged: manifest.json has changed since it was written"
        )
    if manifest["format"] != FORMAT:
        writer = (
            manifest.get("environment", {})
            .get("versions", {})
            .get("rlplug-core", "of another version")
        )
        raise OtherFormat(
            f"checkpoint {path.name} has format {manifest['format']}, which rlplug-core {writer} wrote, and this "
            f"version reads format {FORMAT}; install that version to use it"
        )
    return manifest
