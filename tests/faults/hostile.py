"""Hostile files: a run directory, an index or a TOML file with one corruption, and the answer of a command.

The checks of each answer: no code ran, no file outside was opened, and the message is one sentence (or the command
does not need the file). `test_hostile_files.py` has more than a thousand; the plain test run takes a slice.

python -m tests.faults.hostile      checks all of them and writes the table of `docs/reliability.md`
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rlplug_cli.__main__ import main
from rlplug_core import plugins
from rlplug_core.plugins import index
from rlplug_core.runs.api import train
from rlplug_core.runs.checkpoint import seal_manifest
from tests import waiting

OPTIONS: dict[str, Any] = {
    "total_timesteps": 60, "num_envs": 2, "n_steps": 5, "eval_every": 30, "eval_episodes": 1, "final_eval_episodes": 1,
    "checkpoint_every": 30, "log_every": 10,
}  # fmt: skip
#: Seconds of processor time that a command may take; its limit by the clock is `waiting.PATIENCE`.
PATIENCE = 60
#: Values that replace others: escape codes, paths, and numbers that are too large as a size.
VALUES: tuple[Any, ...] = (
    None, [], {}, "", "x\x1b[31mred\x07", "../../trap/evil.py:Evil", "/etc/passwd", -1, 0, 10**30, 2**63, 1e300, True,
    [[[[[]]]]], {"$tensor": "0:/"}, ["\x1b]0;title\x07"] * 3,
)  # fmt: skip
#: Corruptions of the bytes of any file.
BYTES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "empty": lambda content, draw: b"",
    "cut": lambda content, draw: content[: draw.randrange(max(1, len(content)))],
    "zero tail": lambda content, draw: content[: len(content) // 2] + bytes(len(content) - len(content) // 2),
    "bit": lambda content, draw: flip_bit(content, draw),
    "noise": lambda content, draw: draw.randbytes(300),
    "deep": lambda content, draw: b"[" * 100_000,
    "deep object": lambda content, draw: b'{"a":' * 100_000,
    "huge number": lambda content, draw: b'{"format": ' + b"9" * 10_000 + b"}",
    "no text": lambda content, draw: b'{"name": "\xff\xfe"}',
    "not a number": lambda content, draw: b"NaN",
    "twice": lambda content, draw: content + content,
}


def flip_bit(content: bytes, draw: random.Random) -> bytes:
    """The content with one bit flipped."""
    changed = bytearray(content or b"\0")
    changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


@dataclass(frozen=True)
class Case:
    """One hostile file: its name, the function that corrupts a copy of the run, and the commands that read it."""

    name: str
    spoil: Callable[[Path], None]
    commands: tuple[tuple[str, ...], ...]


#: A checkpoint holds the attributes of the environment. If they are changed, its code may fail, as after a bug in it.
ENVIRONMENT = re.compile(r"the run failed: .* \(cartpole\.py:\d+, in \w+\)")
EVALUATE = ("evaluate", "{run}", "--episodes", "1")
RESUME = ("resume", "{run}", "--total-timesteps", "70", "--quiet", "-P", "no:mlflow")
WATCHED = ("open", "os.listdir", "os.remove", "os.rename", "os.truncate", "socket.getaddrinfo")
LIST = ("runs", "--out", "{out}")
COMPARE = ("compare", "{run}", "--metric", "rollout/return_mean")
SYNC = ("sync", "{run}")
EXPORT = ("export", "{run}", "--out", "{out}/exported")


class World:
    """A trained run, its corrupted copies, and a trap outside of it that nothing may open."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trap = folder / "trap"
        self.trap.mkdir()
        (self.trap / "secret.txt").write_text("secret")
        (self.trap / "evil.py").write_text(f"open({str(self.trap / 'ran')!r}, 'w')\nclass Evil: ...\n")
        self.run = train("a2c", "CartPole-v1", OPTIONS, out=folder / "good", name="one", hooks=False).path
        self.opened: list[str] = []
        self.watching = False
        sys.addaudithook(self._record)

    def _record(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.watching and event in WATCHED:
            path = str(arguments[0])
            if path.startswith("/proc/self/fd/"):  # an open directory, or a file in it
                path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
            if str(self.trap) in path or path in ("/etc/passwd", "/dev/zero", "stranger.invalid"):
                self.opened.append(f"{event} {path}")

    def cases(self, draw: random.Random) -> Iterator[Case]:
        yield from self._configurations(draw)
        yield from self._journals(draw)
        yield from self._checkpoints(draw)
        yield from self._states(draw)
        yield from self._small_files(draw)
        yield from self._other_kinds()

    def _configurations(self, draw: random.Random) -> Iterator[Case]:
        config = json.loads((self.run / "config.json").read_bytes())
        for name, spoil in BYTES.items():
            yield Case(f"config: {name}", corrupt_bytes("config.json", spoil, draw), (LIST, EVALUATE))
        for path, value in trees(config, draw, 330):
            changed = edit_field("config.json", path, value)
            yield Case(f"config: {path} = {value!r:.30}", changed, (LIST, draw.choice((EVALUATE, COMPARE, EXPORT))))

    def _journals(self, draw: random.Random) -> Iterator[Case]:
        lines = (self.run / "journal.jsonl").read_bytes().splitlines(keepends=True)
        for name, spoil in BYTES.items():
            yield Case(f"journal: {name}", corrupt_bytes("journal.jsonl", spoil, draw), (LIST, COMPARE, RESUME))
        for _ in range(250):
            number = draw.randrange(len(lines))
            path, value = next(trees(json.loads(lines[number]), draw, 1))
            line = json.dumps(put(json.loads(lines[number]), path, value)).encode() + b"\n"
            content = b"".join([*lines[:number], line, *lines[number + 1 :]])
            yield Case(
                f"journal: line {number} {path} = {value!r:.30}",
                write_file("journal.jsonl", content),
                (LIST, draw.choice((COMPARE, COMPARE, RESUME))),
            )

    def _checkpoints(self, draw: random.Random) -> Iterator[Case]:
        for place in sorted((self.run / "checkpoints").iterdir()):
            command = EVALUATE if place.name.startswith("best") else RESUME
            for file in sorted(place.iterdir()):
                for name, spoil in BYTES.items():
                    where = str(file.relative_to(self.run))
                    yield Case(f"checkpoint: {where}: {name}", corrupt_bytes(where, spoil, draw), (command,))

    def _states(self, draw: random.Random) -> Iterator[Case]:
        """Changed parts of checkpoints, with hashes that match."""
        for place in sorted((self.run / "checkpoints").iterdir()):
            command = EVALUATE if place.name.startswith("best") else RESUME
            for file in sorted(place.glob("*.json")):
                tree = json.loads(file.read_bytes())
                for path, value in trees(tree, draw, 40 if file.name == "manifest.json" else 12):
                    where = file.relative_to(self.run)
                    yield Case(
                        f"state: {where} {path} = {value!r:.30}", edit_and_reseal(where, path, value), (command,)
                    )

    def _small_files(self, draw: random.Random) -> Iterator[Case]:
        state = {"tracking_uri": "http://127.0.0.1:9", "experiment_id": "1", "run_id": "2", "cursor": 3, "seal": ""}
        for name, spoil in BYTES.items():
            yield Case(
                f"mlflow.json: {name}", write_file("mlflow.json", spoil(json.dumps(state).encode(), draw)), (SYNC,)
            )
        for path, value in trees(state, draw, 30):
            changed = json.dumps(put(json.loads(json.dumps(state)), path, value)).encode()
            yield Case(f"mlflow.json: {path} = {value!r:.30}", write_file("mlflow.json", changed), (SYNC,))
        for uri in ("sqlite:///{trap}/mlflow.db", "file://{trap}", "http://evil.example"):
            changed = json.dumps({**state, "tracking_uri": uri.format(trap=self.trap)}).encode()
            yield Case(f"mlflow.json: {uri}", write_file("mlflow.json", changed), (SYNC,))

    def _other_kinds(self) -> Iterator[Case]:
        """A link, a pipe, a directory, a device or a hole instead of each file that a command opens."""
        files = [path.relative_to(self.run) for path in sorted(self.run.rglob("*"))]
        named = [*files, Path("lock"), Path("mlflow.json"), Path("mlflow.lock"), Path("error.txt"), Path("videos")]
        for where in dict.fromkeys(named):
            commands = (LIST, EVALUATE, RESUME, SYNC) if len(where.parts) == 1 else (EVALUATE, RESUME)
            for name, make in KINDS.items():
                yield Case(f"{where}: {name}", replace_by_kind(make, where, self.trap), commands)

    def find_errors(self, case: Case) -> list[str]:
        """The errors in the answers to a case; empty if there are none."""
        out = self.folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        found = []
        for command in case.commands:
            shutil.rmtree(out, ignore_errors=True)
            run = Path(shutil.copytree(self.run, out / "one"))
            shutil.copytree(self.run, out / "two")
            case.spoil(run)
            words = [word.format(run=run, out=out) for word in command]
            answers = [wrong for wrong in self._answer(words) if not ENVIRONMENT.search(wrong)]
            found += [f"{case.name}: {command[0]}: {wrong}" for wrong in answers]
        return found

    def _answer(self, words: list[str]) -> Iterator[str]:
        self.opened.clear()
        self.watching = True
        try:
            code, output, messages = call_main(words)
        except TimeoutError:
            yield "it hangs"
            return
        finally:
            self.watching = False
        if self.opened:
            yield f"it opened {self.opened[0]}"
        if (self.trap / "ran").exists():
            (self.trap / "ran").unlink()
            yield "it ran foreign code"
        if sorted(path.name for path in self.trap.iterdir()) != ["evil.py", "secret.txt"]:
            yield "it wrote outside of the run"
        if any(path.read_bytes() == b"secret" for path in (self.folder / "out").glob("pushed/*")):
            yield "it published a file outside of the run"
        if (self.trap / "secret.txt").read_text() != "secret":
            yield "it changed a file outside of the run"
        yield from sentences(words, code, output, messages)


def sentences(words: list[str], code: Any, output: str, messages: str) -> Iterator[str]:
    """Yield the errors in an answer: `output` on stdout, `messages` on stderr."""
    lines = messages.splitlines()
    if code not in (0, 1, 2, 3):
        yield f"it ends with {code}: {messages[-300:]}"
    elif code and (not lines or not all(line.startswith("rlplug: ") for line in lines)):
        yield f"it ends with {code} and says {messages[-300:]!r}"
    if "--traceback" in messages or "Traceback" in messages:
        yield f"an internal error: {lines[-1][-300:]}"
    if re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", output + messages):
        yield f"a control character: {output + messages!r:.300}"
    if words[0] == "runs" and (code or " two " not in f" {output} ".replace("\n", " ")):
        yield f"another run is hidden: {messages[-200:]}"


def call_main(words: list[str]) -> tuple[Any, str, str]:
    """Call the command line in this process with a time limit; return its code, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()

    def time_out(number: int, frame: Any) -> None:
        raise TimeoutError

    before = {number: signal.signal(number, time_out) for number in (signal.SIGALRM, signal.SIGPROF)}
    signal.alarm(int(waiting.PATIENCE))
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            plugins.refresh()
            code = main(words)
    except TimeoutError:
        raise
    except BaseException as error:  # noqa: BLE001 - any exception that leaves `main` is an error
        return f"{type(error).__name__}: {error}", out.getvalue(), err.getvalue()
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
    return code, out.getvalue(), err.getvalue()


def trees(tree: Any, draw: random.Random, count: int) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Random paths in a tree, each with a new value; `...` means that the entry is removed."""
    paths = list(leaves(tree))
    for _ in range(count):
        yield draw.choice(paths), draw.choice((*VALUES, ...))


def leaves(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all nodes of a tree."""
    if not isinstance(tree, dict | list):
        return
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        yield (*path, key)
        yield from leaves(value, (*path, key))


def put(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The tree with another value at a path, or without it."""
    node = tree
    for key in path[:-1]:
        node = node[key]
    if value is ...:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    return tree


def corrupt_bytes(
    where: str, spoil: Callable[[bytes, random.Random], bytes], draw: random.Random
) -> Callable[[Path], None]:
    seed = draw.random()  # the same for each command

    def do(run: Path) -> None:
        (run / where).write_bytes(spoil((run / where).read_bytes(), random.Random(seed)))

    return do


def write_file(where: str, content: bytes) -> Callable[[Path], None]:
    return lambda run: (run / where).write_bytes(content) and None


def edit_field(where: str, path: tuple[Any, ...], value: Any) -> Callable[[Path], None]:
    def do(run: Path) -> None:
        (run / where).write_text(json.dumps(put(json.loads((run / where).read_bytes()), path, value)))

    return do


def edit_and_reseal(where: Path, path: tuple[Any, ...], value: Any) -> Callable[[Path], None]:
    """Edit a field, and update all hashes."""
    import hashlib

    def do(run: Path) -> None:
        edit_field(str(where), path, value)(run)
        manifest_path = run / where.parent / "manifest.json"
        manifest = json.loads(manifest_path.read_bytes())
        if where.name != "manifest.json":
            manifest["files"][where.name] = hashlib.sha256((run / where).read_bytes()).hexdigest()
        manifest.pop("sha256", None)
        manifest_path.write_bytes(seal_manifest(manifest))

    return do


def _hole(path: Path, trap: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(1 << 41)


#: Things at the path of a file.
KINDS: dict[str, Callable[[Path, Path], None]] = {
    "link to a file": lambda path, trap: path.symlink_to(trap / "secret.txt"),
    "link to nothing": lambda path, trap: path.symlink_to(trap / "new"),
    "link to a directory": lambda path, trap: path.symlink_to(trap),
    "link to a device": lambda path, trap: path.symlink_to("/dev/zero"),
    "pipe": lambda path, trap: os.mkfifo(path),
    "directory": lambda path, trap: path.mkdir(),
    "hole": _hole,
}


def replace_by_kind(make: Callable[[Path, Path], None], where: Path, trap: Path) -> Callable[[Path], None]:
    def do(run: Path) -> None:
        path = run / where
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        make(path, trap)

    return do


def indexes(draw: random.Random, record: plugins.Record) -> Iterator[tuple[str, bytes]]:
    """Corrupted index files of an algorithm."""
    path = index.file(record)
    assert path is not None
    content = path.read_bytes()
    for name, spoil in BYTES.items():
        yield f"index: {name}", spoil(content, draw)
    for place, value in trees(json.loads(content), draw, 150):
        yield f"index: {place} = {value!r:.30}", json.dumps(put(json.loads(content), place, value)).encode()


def tomls(draw: random.Random) -> Iterator[tuple[str, bytes]]:
    """Corrupted option files."""
    content = b'learning_rate = 1e-3\nwrap = ["time-limit:steps=9"]\n[net]\nhidden = [8, 8]\n'
    for name, spoil in BYTES.items():
        yield f"toml: {name}", spoil(content, draw)
    texts = ("[" * 9000, ".".join("x" * 5000) + " = 1", "gamma = " + "9" * 9999, "gamma = " + "9" * 400,
             "num_envs = 1e400", '"\\u001b[31m" = 1', 'gamma = "\\u001b[31m"', "total_timesteps = " + "9" * 4000,
             "seed = 10000000000000000000000", "net.hidden = [" + "9" * 400 + "]", "gamma = inf", "gamma = 2020-01-01",
             'optimizer = "\\u009b1m"', "wrap = [[]]", "net = 3", 'net.hidden = "x"')  # fmt: skip
    for text in texts:
        yield f"toml: {text:.30}", text.encode()


PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


def main_table() -> int:
    """Check all cases and write the table; return the number of wrong answers."""
    os.environ |= {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = str(Path(folder, "state"))
        world = World(Path(folder))
        files = Counter[str]()
        answers = Counter[str]()
        wrong = Counter[str]()
        for case in world.cases(random.Random(1)):
            kind = next((name for name in NAMES if case.name.startswith(f"{name}:")), "other")
            files[kind] += 1
            answers[kind] += len(case.commands)
            wrong[kind] += len(world.find_errors(case))
    rows = [f"| {NAMES[kind]} | {files[kind]} | {answers[kind]} | {wrong[kind] or 'none'} |" for kind in NAMES]
    counts = f"{files.total():,} files, {answers.total():,} answers, {wrong.total()} wrong"
    summary = f"Measured on {datetime.now(UTC):%Y-%m-%d}: {counts}."
    table = ["<!-- hostile -->", summary, "", "| corrupted | files | answers | wrong |", "|---|---|---|---|", *rows]
    marked = re.compile("<!-- hostile -->.*?(?=<!-- /hostile -->)", re.DOTALL)
    PAGE.write_text(marked.sub(lambda _: "\n".join([*table, ""]), PAGE.read_text()))
    return wrong.total()


#: The names of the kinds of cases in the table.
NAMES = {
    "config": "`config.json`", "journal": "`journal.jsonl`", "checkpoint": "files of checkpoints",
    "state": "parts of checkpoints, with all hashes made to fit", "mlflow.json": "`mlflow.json`",
    "other": "links, pipes, directories, devices, holes",
}  # fmt: skip

if __name__ == "__main__":
    sys.exit(min(1, main_table()))
