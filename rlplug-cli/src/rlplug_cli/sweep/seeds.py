"""Several seeds of one configuration, and what a run costs while it lasts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlplug_cli.sweep.grid import digest, seeds, tasks
from rlplug_cli.sweep.runner import swept
from rlplug_core import plugins
from rlplug_core.config.import_string import is_target
from rlplug_core.config.run_options import RunOptions
from rlplug_core.config.schema import schema
from rlplug_core.plugins import index
from rlplug_core.plugins.names import usable

if TYPE_CHECKING:
    from rlplug_core.protocols import Learner


def seeded(
    algorithm: str,
    env: str,
    words: Sequence[str],
    values: Mapping[str, object],
    text: str,
    name: str | None,
    out: Path,
    jobs: int | None,
    as_json: bool,
    quiet: bool = False,
) -> None:
    """Train the seeds that `text` means, each as a run of its own; `words` say the options again that are `values`."""
    whole = complete(values)
    numbers = seeds(text, int(whole["seed"]))
    found = tasks([algorithm], [env], {algorithm: [[(tuple(words), "")]]}, numbers)
    stem = found[0].name.rpartition("-s")[0]
    directory = out / (name or f"{stem}-{digest([algorithm, env, *words])}")
    cores = cost(algorithm, whole)
    swept(
        "seeds",
        directory,
        found,
        resolved=lambda task: whole,
        costs=lambda task: cores,
        jobs=jobs,
        as_json=as_json,
        quiet=quiet,
    )


def complete(values: Mapping[str, object]) -> dict[str, Any]:
    """Option values over the defaults of those of every run."""
    return {option.name: option.default for option in schema(RunOptions)} | dict(values)


def cost(algorithm: str, values: Mapping[str, Any]) -> int:
    """Return how many cores a run keeps busy: its torch threads, in each of its processes that act or learn."""
    runner = values["runner"] if values["runner"] != "auto" else _usual_runner(algorithm)
    several = {"async": int(values["workers"]), "decoupled": int(values["actors"]) + 1}
    return int(values["threads"]) * (
        1 if values["inline"] else several.get(runner, int(values["learners"]))
    )


def _usual_runner(algorithm: str) -> str:
    if not is_target(algorithm):
        found, _ = index.read(usable("algorithms", algorithm))
        if found is not None:
            return str(found.runners[0])
    learner: type[Learner[Any]] = plugins.algorithm(algorithm)
    return str(learner.runners[0])
