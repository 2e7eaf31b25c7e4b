"""Several seeds of one configuration, and the number of cores that a run needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlplug_cli.sweep.grid import digest, seeds, tasks
from rlplug_cli.sweep.runner import run_sweep
from rlplug_core import plugins
from rlplug_core.config import RunOptions, is_target, schema_of
from rlplug_core.plugins import read_index, usable

if TYPE_CHECKING:
    from rlplug_core.protocols import Learner


def run_seeds(
    words: Sequence[str],
    values: Mapping[str, object],
    text: str,
    name: str | None,
    out: Path,
    jobs: int | None,
    as_json: bool,
    quiet: bool = False,
) -> None:
    """Train the seeds of `--seeds TEXT`, each as a separate run.

    Args:
        words: the algorithm, the environment and the typed options. values: of the options, with presets.
    """
    algorithm, env, *typed = words
    options = with_defaults(values)
    numbers = seeds(text, int(options["seed"]))
    grid = tasks([algorithm], [env], {algorithm: [[(tuple(typed), "")]]}, numbers)
    stem = grid[0].name.rpartition("-s")[0]
    directory = out / (name or f"{stem}-{digest(words)}")
    cores = cost(algorithm, options)
    run_sweep(
        "seeds",
        directory,
        grid,
        options=lambda task: options,
        costs=lambda task: cores,
        jobs=jobs,
        as_json=as_json,
        quiet=quiet,
    )


def with_defaults(values: Mapping[str, object]) -> dict[str, Any]:
    """Return option values together with the defaults of the options that every run has."""
    return {option.name: option.default for option in schema_of(RunOptions)} | dict(values)


def cost(algorithm: str, values: Mapping[str, Any]) -> int:
    """Return the number of cores that a run needs: its torch threads in each process that acts or learns."""
    runner = values["runner"]
    if runner == "auto":
        runner = _default_runner(algorithm)
    threads = int(values["threads"])
    if values["inline"]:
        return threads
    processes = {"async": int(values["workers"]), "decoupled": int(values["actors"]) + 1}
    return threads * processes.get(runner, int(values["learners"]))


def _default_runner(algorithm: str) -> str:
    if not is_target(algorithm):
        entry, _ = read_index(usable("algorithms", algorithm))
        if entry is not None:
            return str(entry.runners[0])
    learner: type[Learner[Any]] = plugins.algorithm(algorithm)
    return str(learner.runners[0])
