"""The files of a checkpoint's component: its tree as JSON, and its arrays as safetensors, with their hashes.

Nothing in them can run code, and only files with the expected hash are read.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import cast

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file as numpy_load_file
from safetensors.numpy import save_file
from safetensors.torch import load_file

from rlplug_core.config.files import STATE, from_json, open_regular, sync_file
from rlplug_core.errors import BadCheckpoint
from rlplug_core.types import Array, State

#: The types of saved arrays.
DTYPES = frozenset(
    {
        "bool",
        *(f"{kind}int{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)),
        "float16",
        "float32",
        "float64",
    }
)


def write_component(
    directory: Path,
    name: str,
    state: State,
) -> Iterator[tuple[str, str]]:
    """Write the files of a component, and yield the name and the SHA-256 of each."""
    arrays: dict[str, Array] = {}
    tree = json.dumps(_encode(state, "", arrays)).encode()
    write_file(directory / f"{name}.json", tree)
    yield f"{name}.json", hashlib.sha256(tree).hexdigest()
    if arrays:
        path = directory / f"{name}.safetensors"
        _save_arrays(path, arrays)
        yield path.name, _digest(path)


def _save_arrays(path: Path, arrays: dict[str, Array]) -> None:
    """Write arrays to disk.

    Raises:
        OSError: the system refused; safetensors has its error number only in a message.
    """
    try:
        save_file(arrays, path)
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        raise (OSError(int(number[1]), str(error)) if number else OSError(str(error))) from error
    sync_file(path)


def read_component(
    directory: Path,
    name: str,
    digests: Mapping[str, str],
) -> State:
    """Read a component and compare its files with the hashes in `digests`."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise ValueError(f"'{name}' cannot be a component's name")
    tree = directory / f"{name}.json"
    arrays = directory / f"{name}.safetensors"
    for path in (tree, arrays) if arrays.name in digests else (tree,):
        if _digest(path) != digests[path.name]:
            raise BadCheckpoint(
                f"checkpoint {directory.name} is damaged: {path.name} has changed since it was written"
            )
    state = _decode(from_json(tree, STATE), _arrays(arrays) if arrays.name in digests else {})
    if not isinstance(state, dict):
        raise ValueError(f"{tree.name} does not contain a dictionary")
    return state


def _arrays(path: Path) -> dict[str, Array]:
    """Map the arrays of a safetensors file into memory, as private pages; on Windows read them.

    The parts of a run copy their state when it is loaded, so without the mapping a large replay buffer would be in
    memory twice. Only the library's loader for torch maps files. Windows cannot rename or delete a mapped file, which a
    resume must do.

    Raises:
        OSError: the system refused; torch has its error number only in a message.
    """
    if os.name == "nt":
        return {name: array.copy() for name, array in numpy_load_file(path).items()}
    try:
        return {name: tensor.numpy() for name, tensor in load_file(path).items()}
    except RuntimeError as error:
        number = re.search(r"\((\d+)\)$", str(error))
        raise (OSError(int(number[1]), str(error)) if number else OSError(str(error))) from error


def _encode(value: object, path: str, arrays: dict[str, Array]) -> object:
    """Return state as JSON; arrays and tensors are moved to `arrays` and replaced by their names there."""
    if isinstance(value, torch.Tensor):
        tensor = value.detach().cpu()
        if tensor.dtype == torch.bfloat16:  # NumPy does not have this type
            return {"$bfloat16": _add_array(tensor.view(torch.int16).numpy(), path, arrays)}
        return {"$tensor": _add_array(tensor.numpy(), path, arrays)}
    if isinstance(value, np.ndarray):
        return {"$array": _add_array(value, path, arrays)}
    if isinstance(value, Mapping):
        if bad_keys := [key for key in value if not isinstance(key, str | int)]:
            raise TypeError(
                f"state at '{path}' has the key {bad_keys[0]!r}; keys are strings or integers"
            )
        return {
            "$dict": [[key, _encode(item, f"{path}/{key}", arrays)] for key, item in value.items()]
        }
    if isinstance(value, tuple | list):
        items = [_encode(item, f"{path}/{index}", arrays) for index, item in enumerate(value)]
        return {"$tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(
        f"state at '{path}' is a {type(value).__name__}; state is tensors, arrays, numbers, strings, None"
    )


def _add_array(array: Array, path: str, arrays: dict[str, Array]) -> str:
    """Add an array to `arrays` and return its name; the number makes it unique, as keys may contain slashes."""
    if array.dtype.name not in DTYPES:
        raise TypeError(
            f"state at '{path}' is an array of {array.dtype}; arrays hold numbers or booleans"
        )
    name = f"{len(arrays)}:{path}"
    arrays[name] = np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")
    return name


def _decode(value: object, arrays: dict[str, Array]) -> object:
    if isinstance(value, list):
        return [_decode(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "$dict":
        return {key: _decode(item, arrays) for key, item in content}
    if kind == "$tuple":
        return tuple(_decode(item, arrays) for item in content)
    if kind == "$array":
        return arrays[content]
    tensor = torch.from_numpy(arrays[content])
    return tensor.view({"$tensor": tensor.dtype, "$bfloat16": torch.bfloat16}[kind])


def _digest(path: Path) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(cast("BufferedReader", file), "sha256").hexdigest()


def write_file(path: Path, content: bytes) -> None:
    with open(path, "xb") as file:  # not through a link
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
