"""Give a run the state of another run of its population, and other values of options, between two chunks of training.

After a kill at any moment, the same call completes the exchange. It writes the configuration, which lists all exchanges
of the run, last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from rlplug_core.runs.checkpoint import Checkpoints, read
from rlplug_core.runs.journal import Journal, read_backwards
from rlplug_core.runs.run import Run, open_run
from rlplug_core.runs.schemas import RunConfig
from rlplug_core.runs.trust import SEAL, add_seal, require_seal


@dataclass(frozen=True)
class Taken:
    """An exchange, as the journal and the configuration record it.

    Attributes:
        chunk: the number of the chunk before it, from 1.
        source: the name of the run with the checkpoint; "" if the run keeps its own state.
        checkpoint: the name of the checkpoint.
        options: the values that changed.
    """

    chunk: int
    source: str
    checkpoint: str
    options: Mapping[str, object]

    def plain(self) -> dict[str, object]:
        return asdict(self)


def take_checkpoint(path: Path, taken: Taken) -> None:
    """Let the run at `path` continue from a checkpoint of a run next to it, with other values of options.

    Raises:
        UsageError: the run does not exist, or another process works on it. BadCheckpoint: the checkpoint cannot be
            read.
    """
    run = open_run(path)
    with run.directory.locked():
        config = run.directory.config
        exchanges = list(config.get("exchanges", ()))
        if exchanges and exchanges[-1]["chunk"] >= taken.chunk:
            return
        require_seal(run.path, config)  # the new seal must not cover code of other accounts
        source = path.parent / taken.source if taken.source else path
        checkpoint = source / "checkpoints" / taken.checkpoint
        components, manifest = read(checkpoint)
        step = int(manifest["step"])
        number = _record(run, step, taken)
        kind = checkpoint.name.rpartition("-")[0]
        checkpoints = Checkpoints(run.directory.checkpoints_path, 0)
        checkpoints.save(kind, step, components, {**_other_entries(manifest), "journal": number})
        if taken.source:
            # The state of the run includes its best evaluation, so the best checkpoint comes along.
            for saved in Checkpoints(source / "checkpoints").kept("best")[:1]:
                components, manifest = read(saved.path)
                checkpoints.save("best", saved.step, components, _other_entries(manifest))
        run.directory.write_config(add_seal(_new_config(config, taken)))


def _new_config(config: RunConfig, taken: Taken) -> dict[str, object]:
    """Return the configuration of a run after an exchange, without its seal."""
    return {
        **{name: value for name, value in config.items() if name != SEAL},
        "options": {**config["options"], **taken.options},
        "origins": {**config.get("origins", {}), **dict.fromkeys(taken.options, "exchange")},
        "exchanges": [*config.get("exchanges", ()), taken.plain()],
    }


def _record(run: Run, step: int, taken: Taken) -> int:
    """Record an exchange in the journal, once; return the number of the record."""
    last = next(iter(read_backwards(run.journal)), None)
    if last is not None and last.kind == "exchange" and last.data["chunk"] == taken.chunk:
        return last.seq
    journal = Journal(run.journal)
    try:
        record = journal.write("exchange", step, taken.plain())
        journal.sync()
    finally:
        journal.close()
    return record.seq


def _other_entries(manifest: Mapping[str, object]) -> dict[str, object]:
    """Return the entries of a manifest that do not describe its own files."""
    excluded = ("format", "step", "components", "files", "sha256")
    return {name: value for name, value in manifest.items() if name not in excluded}
