"""Directories of another account: hostile words in records, links in sweeps and exports, unusual names, bombs.

They are cases of `hostile.World` with its checks: no code ran, no file outside was opened or written, and each answer
is one sentence.
"""

from __future__ import annotations

import json
import os
import random
import zipfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from tests.faults.hostile import (
    BYTES,
    EVALUATE,
    KINDS,
    RESUME,
    Case,
    World,
    edit_field,
    put,
    replace_by_kind,
    trees,
    write_file,
)

#: Words that name code in the working directory, which contains the trap, or files outside of the run.
WORDS = (
    "pettingzoo/trap.evil", "pettingzoo/evil", "trap.evil:Evil", "./trap/evil.py:Evil", "ale/trap.evil", "evil",
    "../../trap/evil.py:Evil", "ray://127.0.0.1:9", "gymnasium:trap.evil", "a2c:x=trap.evil:Evil", "-Ptrap",
    "trap/secret.txt", "rlplug_core/../trap", "\x1b[31mred", "a\nb", "/proc/self/environ",
    "sources/../../trap/evil.py:Evil", "evil.py",
)  # fmt: skip
#: The commands that build the objects that a record names.
BUILD = (
    EVALUATE, RESUME, ("play", "{run}", "--episodes", "1", "--frames", "{out}/frames"),
    ("record", "{run}", "-o", "{out}/data.npz", "--steps", "20"), ("reproduce", "{run}", "--name", "again"),
    ("export", "{run}", "--out", "{out}/exported"), ("show", "{run}"),
)  # fmt: skip
LONG = ("--total-timesteps", "40", "--n-steps", "5", "--eval-episodes", "1", "--final-eval-episodes", "0", "-q", "-P",
        "no:mlflow")  # fmt: skip
SWEEP = ("sweep", "a2c", "CartPole-v1", "--seeds", "1", *LONG, "--name", "sw", "--out", "{out}")
COMPARE = ("compare", "{out}/sw")


def cases(world: World, draw: random.Random) -> Iterator[Case]:
    """All cases of this module."""
    yield from words_of_records(world)
    yield from starts_and_films(world)
    yield from sweeps(world, draw)
    yield from names(world)
    yield from data_sets(world, draw)


def words_of_records(world: World) -> Iterator[Case]:
    """A word in each field that names something, in a record without this account's seal."""
    config = json.loads((world.run / "config.json").read_bytes())
    texts = [("options", name) for name, value in config["options"].items() if isinstance(value, str | None)]
    lists = [("options", name) for name, value in config["options"].items() if isinstance(value, list)]
    number = 0
    for path in [("env",), ("algorithm",), *texts, *lists]:
        for word in WORDS:
            spoil = edit_field("config.json", path, [word] if path in lists else word)
            yield Case(f"word: {path} = {word!r:.40}", spoil, (BUILD[number % len(BUILD)],))
            number += 1


def starts_and_films(world: World) -> Iterator[Case]:
    """A run that started from the weights of a server, and something else instead of the folder of films."""
    for word in (
        "https://stranger.invalid/agent",
        "http://stranger.invalid/agent",
        "https://stranger.invalid:1/a#sha256=0",
    ):
        yield Case(f"start: {word}", edit_field("config.json", ("options", "init"), word), BUILD)
    for name, make in KINDS.items():
        spoil = replace_by_kind(make, Path("videos"), world.trap)
        yield Case(f"films: {name}", spoil, (("play", "{run}", "--episodes", "1"),))


def sweeps(world: World, draw: random.Random) -> Iterator[Case]:
    """The directory of a sweep that a user starts later under the same name."""
    task = {"name": "t-s1", "algorithm": "a2c", "env": "CartPole-v1", "seed": 1, "words": ["--total-timesteps", "40"]}
    manifest = {"format": 1, "kind": "sweep", "uid": "x", "created": 1.0, "files": {}, "seal": "0", "tasks": [task]}
    for name, spoil in BYTES.items():
        yield Case(f"sweep.json: {name}", in_sweep("sweep.json", spoil(json.dumps(manifest).encode(), draw)), (SWEEP,))
    for path, value in trees(manifest, draw, 40):
        changed = json.dumps(put(json.loads(json.dumps(manifest)), path, value)).encode()
        yield Case(f"sweep.json: {path} = {value!r:.30}", in_sweep("sweep.json", changed), (SWEEP, COMPARE))
    for name in ("../../trap", "../one", "/tmp", "..", ".", "", "a/b", "trap\0", "-x", "sweep.json", "logs"):
        changed = json.dumps({**manifest, "tasks": [{**task, "name": name}]}).encode()
        yield Case(f"task: {name!r}", in_sweep("sweep.json", changed), (SWEEP,))
    for word in WORDS:
        for key in ("env", "algorithm"):
            changed = json.dumps({**manifest, "tasks": [{**task, key: word}]}).encode()
            yield Case(f"task: {key} = {word!r:.40}", in_sweep("sweep.json", changed), (SWEEP,))
    for where in ("compare.html", "logs", "lock", "mlflow.json", "mlflow.lock", "sweep.json", "a2c-s1", "slurm.sh"):
        for name, make in KINDS.items():
            yield Case(f"sweep: {where}: {name}", kind_in("sw", make, where, world.trap), (SWEEP, COMPARE))


def in_sweep(where: str, content: bytes) -> Callable[[Path], None]:
    def do(run: Path) -> None:
        (run.parent / "sw").mkdir()
        (run.parent / "sw" / where).write_bytes(content)

    return do


def kind_in(folder: str, make: Callable[[Path, Path], None], where: str, trap: Path) -> Callable[[Path], None]:
    """Make a directory `folder` next to the run with something else instead of a file."""

    def do(run: Path) -> None:
        (run.parent / folder).mkdir()
        replace_by_kind(make, Path(where), trap)(run.parent / folder)

    return do


def names(world: World) -> Iterator[Case]:
    """A run with a name that a terminal, a shell, a table or a page could misinterpret."""
    odd = (b"\xff\xfe", b"a\nb", b"\x1b[31mred", b"=1+1", b"<script>", b"'; touch x; '", b"$(id)", b"-rf", b"n" * 250)
    commands = (
        ("compare", "{out}"), ("compare", "{out}", "--csv", "-"), ("show", "{run}"),
        ("compare", "{out}", "--html", "{out}/page.html"), ("compare", "{out}", "--json"),
    )  # fmt: skip
    for name in odd:
        for command in commands:
            yield Case(f"name: {name!r:.40}", rename_second(name), (command,))


def rename_second(name: bytes) -> Callable[[Path], None]:
    return lambda run: os.rename(os.fsencode(run.parent / "two"), os.fsencode(run.parent) + b"/" + name)


def data_sets(world: World, draw: random.Random) -> Iterator[Case]:
    """A data set of another account: bombs, objects with pickles that run code, deep headers, wrong shapes."""
    train = ("run", "cql", "Pendulum-v1", "--dataset", "{run}/data.npz", "--out", "{out}", *LONG[:2], *LONG[4:])
    good = {
        "observations": np.zeros((60, 3), np.float32), "actions": np.zeros((60, 1), np.float32),
        "rewards": np.ones(60, np.float32), "terminations": np.zeros(60, bool),
        "truncations": np.arange(60) % 10 == 9, "next_observations": np.zeros((60, 3), np.float32),
        "about": np.array('{"env": "Pendulum-v1"}'),
    }  # fmt: skip
    arrays: dict[str, Any] = {
        "objects": np.array([Evil(str(world.trap / "ran"))] * 60, object), "deep": np.zeros((1,) * 30),
        "text": np.array(["\x1b[31m"] * 60), "nan": np.full(60, np.nan), "short": np.zeros(3), "none": np.zeros((0, 4)),
        "complex": np.zeros(60, complex), "far": np.full(60, 1e308), "many": np.zeros((60, 100_000), np.int8),
        "field": np.zeros(60, [("a", "f4")]), "date": np.zeros(60, "M8[s]"), "bool": np.zeros(60, bool),
    }  # fmt: skip
    for field in good:
        for name, array in arrays.items():
            yield Case(f"data: {field} is {name}", write_file("data.npz", compress({**good, field: array})), (train,))
    for name, spoil in BYTES.items():
        yield Case(f"data: {name}", write_file("data.npz", spoil(compress(good), draw)), (train,))
    bomb = BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("observations.npy", "bomb.npy", "../out.npy"):
            archive.writestr(name, bytes(50_000_000))
    yield Case("data: bomb", write_file("data.npz", bomb.getvalue()), (train,))


class Evil:
    """An object that writes a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (open, (self.path, "w"))


def compress(arrays: dict[str, Any]) -> bytes:
    file = BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


class EndedJob:
    """A job that has ended, because runs of the sweep are not tested here."""

    def code(self) -> int:
        return 1

    def stop(self) -> None:
        """The job has ended."""

    def kill(self) -> None:
        """The job has ended."""


def start_nothing(self: object, words: object, log: object, cores: object) -> EndedJob:
    """Replaces `LocalPlace.start`."""
    return EndedJob()
