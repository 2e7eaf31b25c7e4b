"""Checkpoints: a tree of state as files with hashes, written so that a kill at any moment loses nothing that was there.

A checkpoint is a directory `<kind>-<step>` with one `.json` and one `.safetensors` file per component and a
`manifest.json` that holds every file's SHA-256. It is written under a temporary name, fsynced and renamed. Nothing in
it can run code.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

from rlplug_core.errors import BadCheckpoint
from rlplug_core.types import Array, State

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint on disk: what kind, at which env step, where."""

    kind: str
    step: int
    path: Path


class Checkpoints:
    """The checkpoints of one run directory; keeps the last `keep` of kind `step` and the last of every other kind."""

    def __init__(self, directory: Path, keep: int = 3) -> None:
        self.directory, self.keep = directory, keep

    def save(self, kind: str, step: int, components: Mapping[str, State], about: Mapping[str, Any]) -> Saved:
        """Write a checkpoint durably, then drop the old ones of its kind; `about` goes into the manifest."""
        self.directory.mkdir(parents=True, exist_ok=True)
        final = self.directory / f"{kind}-{step:012d}"
        temporary = self.directory / f".tmp-{final.name}-{os.getpid()}"
        temporary.mkdir()
        files: dict[str, str] = {}
        for name, state in components.items():
            files.update(_write_component(temporary, name, state))
        manifest = {"format": FORMAT, "step": step, "components": sorted(components), "files": files, **about}
        _write(temporary / "manifest.json", json.dumps(manifest, indent=1).encode())
        _sync_directory(temporary)
        self._replace(temporary, final)
        self._prune(kind)
        return Saved(kind, step, final)

    def kept(self, *kinds: str) -> list[Saved]:
        """Those of the given kinds (all without), newest first; of one step, in the order of `kinds`."""
        found = []
        for path in self.directory.glob("[!.]*-*") if self.directory.exists() else ():
            kind, _, step = path.name.rpartition("-")
            if step.isdigit() and (not kinds or kind in kinds):
                found.append(Saved(kind, int(step), path))
        return sorted(found, key=lambda saved: (-saved.step, kinds.index(saved.kind) if kinds else 0))

    def load(self, kinds: Sequence[str], *only: str) -> tuple[Saved, dict[str, State], dict[str, Any], list[str]]:
        """The newest readable checkpoint of these kinds: where, components, manifest, why newer ones were passed over.

        Args:
            kinds: such as `step`, `final`, `best`.
            only: the components to read; all without.

        Raises:
            BadCheckpoint: none is left that can be read.
        """
        warnings: list[str] = []
        for saved in self.kept(*kinds):
            try:
                components, manifest = read(saved.path, *only)
            except BadCheckpoint as error:
                warnings.append(str(error))
                continue
            return saved, components, manifest, warnings
        reasons = f": {'; '.join(warnings)}" if warnings else ""
        raise BadCheckpoint(f"{self.directory} holds no readable {' or '.join(kinds)} checkpoint{reasons}")

    def _replace(self, temporary: Path, final: Path) -> None:
        if final.exists():
            old = self.directory / f".old-{final.name}-{os.getpid()}"
            final.rename(old)
            temporary.rename(final)
            shutil.rmtree(old)
        else:
            temporary.rename(final)
        _sync_directory(self.directory)

    def _prune(self, kind: str) -> None:
        for saved in self.kept(kind)[self.keep if kind == "step" else 1 :]:
            shutil.rmtree(saved.path)
        for stale in self.directory.glob(".tmp-*"):
            if not stale.name.endswith(f"-{os.getpid()}"):
                shutil.rmtree(stale, ignore_errors=True)


def read(path: Path, *only: str) -> tuple[dict[str, State], dict[str, Any]]:
    """The components (`only` those named, if any) and the manifest of the checkpoint at `path`, their hashes verified.

    Raises:
        BadCheckpoint: a file is missing, changed or unreadable.
    """
    try:
        manifest = json.loads((path / "manifest.json").read_bytes())
        names = only or manifest["components"]
        for name, digest in manifest["files"].items():
            if name.partition(".")[0] in names and _digest(path / name) != digest:
                raise BadCheckpoint(f"checkpoint {path.name} is damaged: {name} has changed since it was written")
        return {name: _read_component(path, name) for name in names}, manifest
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadCheckpoint(f"checkpoint {path.name} is damaged: {type(error).__name__}: {error}") from error


def _write_component(directory: Path, name: str, state: State) -> Iterator[tuple[str, str]]:
    arrays: dict[str, Array] = {}
    tree = json.dumps(_encode(state, "", arrays)).encode()
    _write(directory / f"{name}.json", tree)
    yield f"{name}.json", hashlib.sha256(tree).hexdigest()
    if arrays:
        path = directory / f"{name}.safetensors"
        save_file(arrays, path)
        with open(path, "rb") as file:
            os.fsync(file.fileno())
        yield path.name, _digest(path)


def _read_component(directory: Path, name: str) -> State:
    tree = json.loads((directory / f"{name}.json").read_bytes())
    path = directory / f"{name}.safetensors"
    state: State = _decode(tree, load_file(path) if path.exists() else {})
    return state


def _encode(value: Any, path: str, arrays: dict[str, Array]) -> Any:
    """Plain JSON, with arrays and tensors moved to `arrays` and their place marked."""
    if isinstance(value, torch.Tensor):
        arrays[path] = np.ascontiguousarray(value.detach().cpu().numpy()).copy().reshape(value.shape)
        return {"$tensor": path}
    if isinstance(value, np.ndarray):
        arrays[path] = np.ascontiguousarray(value).reshape(value.shape)
        return {"$array": path}
    if isinstance(value, Mapping):
        return {"$dict": [[str(key), _encode(item, f"{path}/{key}", arrays)] for key, item in value.items()]}
    if isinstance(value, tuple | list):
        items = [_encode(item, f"{path}/{index}", arrays) for index, item in enumerate(value)]
        return {"$tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"state at '{path}' is a {type(value).__name__}; state is tensors, arrays, numbers, strings, None")


def _decode(value: Any, arrays: dict[str, Array]) -> Any:
    if isinstance(value, list):
        return [_decode(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "$tensor":
        return torch.from_numpy(arrays[content])
    if kind == "$array":
        return arrays[content]
    if kind == "$tuple":
        return tuple(_decode(item, arrays) for item in content)
    return {key: _decode(item, arrays) for key, item in content}


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(path: Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
