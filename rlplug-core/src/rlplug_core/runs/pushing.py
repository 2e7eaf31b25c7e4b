"""Shares an agent: its exported policy, its card, and the record of its run without the folders of this machine."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rlplug_core.config.files import content
from rlplug_core.errors import UsageError, plain
from rlplug_core.export.bundle import read
from rlplug_core.runs.card import command_of
from rlplug_core.runs.listing import readable_summary, records
from rlplug_core.runs.run import Run
from rlplug_core.runs.trust import require_plugins, unknown_wrappers
from rlplug_core.sharing.agent_files import LIMITS, MANIFEST, check_folder, manifest_of
from rlplug_core.sharing.film_file import FILM, FILM_BYTES, FILM_MARKDOWN
from rlplug_core.sharing.places import place_of

#: The entries of a configuration that are shared.
SHARED = ("name", "uid", "group", "algorithm", "env", "options", "origins", "created")
#: The kinds of records that are shared, and the entries of a `start` record.
RECORDS = ("start", "evaluation", "final_eval", "end")
START = ("resumed", "after", "limit", "rescale")
#: The folder of an absolute path.
_FOLDER = re.compile(r"(?<![\w.:/])/(?:[^/\s:=,]+/)*")


@dataclass(frozen=True)
class PushedAgent:
    """The source that pulls a shared agent, and the SHA-256 of its `agent.json`, which pins all its files."""

    source: str
    sha256: str


def push(
    run: Run,
    destination: str,
    checkpoint: str = "best",
    film: bool = False,
) -> PushedAgent:
    """Write the agent of a run, or an export, to a folder or a source.

    Args:
        destination: a new folder, `https://host/folder`, `hub:owner/name` or `mlflow:name`.
        checkpoint: as in `Run.export`.
        film: play an episode and add a film of it, which the card shows.

    Raises:
        UsageError: the agent needs an environment or a wrapper that is not an installed plugin, the environment has no
            frames, or the destination does not accept the files.
    """
    target = place_of(destination)
    with TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        folder = Path(directory, "agent")
        if run.directory.is_export:
            folder.mkdir()
            for name in LIMITS:
                if os.path.lexists(run.path / name):  # a link would publish another file
                    (folder / name).write_bytes(content(run.path / name, LIMITS[name]))
        else:
            run.export(folder, checkpoint)
            _write_record(run, folder)
        if film:
            _add_film(run, folder, checkpoint)
        description = read(folder).about
        _refuse_code(run, description)
        check_folder(folder)
        files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    algorithm = _without_folders(description.get("algorithm", ""))
    manifest = manifest_of(files, algorithm, description.get("env", ""), _command(run))
    source = target.write({**files, MANIFEST: manifest})
    return PushedAgent(source, sha256(manifest).hexdigest())


def _add_film(run: Run, folder: Path, checkpoint: str) -> None:
    """Write a film of one episode into the folder, with fewer frames if it is too large, and show it on the card.

    Raises:
        UsageError: the environment has no frames, or the film is too large even with every 32nd frame.
    """
    film_path = folder / FILM
    film_path.unlink(missing_ok=True)
    for interval in (2, 8, 32):
        run.play(1, checkpoint=checkpoint, video=film_path, every=interval)
        if film_path.stat().st_size <= FILM_BYTES:
            break
    else:
        raise UsageError(
            f"a film of an episode has more than {FILM_BYTES:,} bytes; push without --film"
        )
    card = folder / "README.md"
    text = card.read_text(encoding="utf-8") if card.is_file() else ""
    card.write_bytes(f"{text.replace(FILM_MARKDOWN, '').rstrip()}\n\n{FILM_MARKDOWN}\n".encode())


def _refuse_code(run: Run, description: dict[str, Any]) -> None:
    """Raise UsageError if an agent needs code that is not in an installed package."""
    evaluation = description.get("evaluation") or {}
    words = [
        *description.get("wrap", ()),
        *description.get("wrap_each", ()),
        *evaluation.get("wrap", ()),
    ]
    for env in (str(description.get("env", "")), str(evaluation.get("env", ""))):
        try:
            require_plugins(run.path, unknown_wrappers(words, env), env)
        except UsageError as error:
            raise UsageError(
                f"{plain(str(error)).partition('; ')[0]}; a shared agent has no code, so put it into a package first "
                "('rlplug new' makes one)"
            ) from error


def _command(run: Run) -> str:
    """Return the command line that trains a run again; "" for an export without a record.

    Raises:
        RlplugError: the record cannot be read.
    """
    if not run.directory.config_path.is_file():
        return ""
    return str(_without_folders(command_of(readable_summary(run.path), run.config)))


def _write_record(run: Run, folder: Path) -> None:
    """Write the part of a run's record that comparisons need, and remove folders of this machine from the card."""
    config = {name: value for name, value in run.config.items() if name in SHARED}
    config = _without_folders({**config, "sources": {}, "seal": ""})
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    lines = []
    for record in records(run.path, *RECORDS):
        data = record.data
        if record.kind == "start":
            data = {name: data[name] for name in START if name in data}
        line = {"seq": record.seq, "time": record.time, "kind": record.kind, "step": record.step}
        lines.append(json.dumps({**line, "data": data}, separators=(",", ":")) + "\n")
    (folder / "journal.jsonl").write_text("".join(lines), encoding="utf-8")
    card = folder / "README.md"
    card.write_text(_without_folders(card.read_text(encoding="utf-8")), encoding="utf-8")


def _without_folders(value: Any) -> Any:
    """Return JSON without the folders of absolute paths."""
    if isinstance(value, dict):
        return {name: _without_folders(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_folders(item) for item in value]
    return _FOLDER.sub("", value) if isinstance(value, str) else value
