"""Read data sets from files and from Minari.

A file is a NumPy archive, `.npz`, with arrays [M, ...] of M transitions in the order of time, in the units of the
environment: `observations`, `actions`, `rewards`, `next_observations`, `terminations`,
`truncations`. The parts of a dictionary have names such as `observations/part`. Nothing in it is pickled.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from rlplug_core.buffers.dataset import FIELDS, MINARI, Dataset, flatten, nest
from rlplug_core.buffers.minari_data import from_minari
from rlplug_core.config.files import open_regular
from rlplug_core.errors import BadFile, UsageError, plain

#: The errors of numpy, zipfile and `nest` for files that are damaged, encrypted, or nested too deeply.
_UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    MemoryError,
    RecursionError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)
#: The entry with a file's description of itself, as JSON.
ABOUT = "about"


def read(place: str) -> Dataset:
    """Return the data set at `FILE.npz` or `minari:ID`.

    Raises:
        UsageError: the data set does not exist. BadFile: it cannot be read. MissingPackage: minari is not installed.
    """
    if place.startswith(MINARI):
        return from_minari(place)
    path = Path(place).absolute()
    try:
        with open_regular(path, follow=True) as file:
            arrays, description = _unpack(path, file)
    except FileNotFoundError as error:
        raise UsageError(
            f"there is no data set {place}; `rlplug record RUN -o FILE.npz` makes one"
        ) from error
    except _UNREADABLE as error:
        raise BadFile(path, f"it is not a data set: {plain(str(error), 100)}") from error
    return Dataset(str(path), arrays, _env(description))


def _unpack(path: Path, file: Any) -> tuple[dict[str, object], str]:
    """Return the arrays of `FIELDS` in a file, and its description as JSON; raise BadFile if there is none."""
    archive = np.load(file, allow_pickle=False)
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise BadFile(
            path, "it is one array; a data set is an archive of several, as np.savez writes it"
        )
    # Only these are unpacked: another array of the archive may be a thousand times its size in the file.
    needed = [name for name in archive.files if name.partition("/")[0] in (*FIELDS, ABOUT)]
    tree = nest({name: archive[name] for name in needed})
    if missing := [name for name in FIELDS if name not in tree]:
        raise BadFile(path, f"it lacks '{missing[0]}'; a data set has {', '.join(FIELDS)}")
    arrays = {name: tree[name] for name in FIELDS}
    leaves = flatten(arrays)
    if any(array.ndim == 0 for array in leaves.values()) or not len(leaves.get("rewards", ())):
        raise BadFile(path, "it has no transitions")
    return arrays, str(tree.get(ABOUT, "{}"))


def _env(text: str) -> str:
    """Return the id of the environment in a file's description, "" if there is none."""
    try:
        description = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    env = description.get("env", "") if isinstance(description, dict) else ""
    return plain(env) if isinstance(env, str) else ""
